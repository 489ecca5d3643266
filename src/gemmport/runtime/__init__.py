"""What a process has beside devices: files, folders, caches, other processes, its CPU, the sources of kernels."""
