"""The end of a process that computed for PyTorch: nothing is said, whatever is left open."""

from __future__ import annotations

import subprocess
import sys

import pytest

from absences import TORCH, needs

pytestmark = needs(TORCH)

ENDING = """
import sys, threading, time
import torch
import gemmport.torch as gt

place = sys.argv[1]
a = torch.randn(64, 64, device=place)
model = torch.nn.Linear(64, 64).to(place)
compiled = torch.compile(gt.mm, backend="aot_eager")
compiled(a, a)
routing = gt.use()
routing.__enter__()  # and never left
kept = model(a).sum()
kept.backward()
if place == "cuda":
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        result = gt.mm(a, a)
    graph.replay()

def work():
    x = torch.randn(64, 64, device=place)
    while True:
        gt.mm(x, x)

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
print("end")
"""


@pytest.mark.processes
def test_is_quiet() -> None:
    import tensors  # noqa: PLC0415 - it needs torch

    ran = subprocess.run(
        [sys.executable, "-c", ENDING, tensors.place], capture_output=True, text=True, check=False, timeout=300
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")
