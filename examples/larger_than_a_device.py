"""Multiplies two matrices in files that are larger than the memory that the device, and the host, may give.

python examples/larger_than_a_device.py --size 8192 --device-memory 256MB --host-memory 64MB
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import gemmport as gp
from gemmport.outofcore.progress import Progress


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--device-memory", default="16MB")
    parser.add_argument("--host-memory", default="4MB")
    options = parser.parse_args()
    n = options.size
    print(gp.explain((n, n, n), device_memory=options.device_memory))
    with tempfile.TemporaryDirectory() as folder:
        # Files of your own are opened with np.load(path, mmap_mode="r").
        a, b, c = (
            np.lib.format.open_memmap(Path(folder, f"{name}.npy"), "w+", np.float32, (n, n)) for name in ("a", "b", "c")
        )
        for start in range(0, n, 256):
            a[start : start + 256] = np.arange(start, min(start + 256, n))[:, np.newaxis] % 5
            b[start : start + 256] = np.arange(n) % 3

        told = ""

        def tell(progress: Progress) -> None:
            nonlocal told
            now = f"{progress.moved / max(progress.total, 1):4.0%} of what is moved"
            if now != told:  # it is called with each copy
                print(f"\r{now}", end="", flush=True)
                told = now

        gp.matmul(a, b, out=c, device_memory=options.device_memory, host_memory=options.host_memory, progress=tell)
        print()
        row = n // 2
        right = np.array_equal(c[row], row % 5 * (np.arange(n) % 3) * np.float32(n))
        print("row", row, "is right" if right else "is wrong")
        raise SystemExit(0 if right else 1)


if __name__ == "__main__":
    main()
