"""Multiplies matrices with a checkpoint: interrupt or kill it, start it again, and it goes on.

python examples/goes_on.py state --size 8192 --device-memory 256MB
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import gemmport as gp


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where operands, result and journal are")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--device-memory", default="16MB")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    operands = []
    for name in ("a", "b"):
        path = options.folder / f"{name}.npy"
        values = rng.integers(-3, 4, (options.size, options.size)).astype(np.float32)
        if not path.exists():
            np.save(path, values)
        operands.append(np.load(path, mmap_mode="r"))
    a, b = operands
    # The same call each time. Its result is state/checkpoint/result.npy, as a memory map.
    c = gp.matmul(
        a, b, checkpoint=options.folder / "checkpoint", device_memory=options.device_memory,
        progress=lambda progress: print(f"\r{progress.tiles} of {progress.all_tiles} tiles", end=""),
    )  # fmt: skip
    print()
    row = options.size // 2
    right = np.array_equal(c[row], a[row].astype(float) @ b.astype(float))
    print("row", row, "is right" if right else "is wrong")
    raise SystemExit(0 if right else 1)


if __name__ == "__main__":
    main()
