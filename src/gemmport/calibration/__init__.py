"""A device's model, measured: micro-benchmarks, each verified, what comes of them, and the configuration that states it."""
