"""Hardware counters of plans under CUDA, by Nsight Compute, and what they say; see docs/profile.md."""
