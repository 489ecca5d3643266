"""A device's model, measured: micro-benchmarks, each verified, what comes of them, and the entry of a configuration that states it."""
