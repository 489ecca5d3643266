"""`explain`: why a product is computed the way it is, and how long that is expected to take."""

from __future__ import annotations

from collections.abc import Sequence

from gemmport.api.plans import Config, configuration_of
from gemmport.contracts.kernel import Parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import ShapeError
from gemmport.core.problem import GemmProblem
from gemmport.execution.selection import select_device
from gemmport.planning.explanation import Explanation
from gemmport.planning.explanation import explain as explanation
from gemmport.planning.planner import AUTO


def explain(
    problem: GemmProblem | Sequence[int],
    device: DeviceInfo | str | int | None = None,
    *,
    backend: str | None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
    **described: object,
) -> Explanation:
    """Why a product is computed on a device as it is, and how long that is expected to take. Nothing is run.

    `print` shows it as one page; its attributes are the facts, and `to_dict` makes plain data of them.

    Args:
        problem: from `GemmProblem.create`, or its sizes (m, n, k).
        device: from `devices()`, or built by hand, which need not be here; or a description, as of `get_backend`; default: the
            best.
        backend: "cuda", "opencl" or "auto".
        kernel, params, config: as `plan`.
        described: of a problem of sizes, what else `GemmProblem.create` takes: batch, dtype, output, trans_a, …

    Raises:
        ShapeError: sizes that are not three. Others as `plan` and `get_backend`.
    """
    if not isinstance(problem, GemmProblem):
        if isinstance(problem, str) or len(problem) != 3:
            raise ShapeError(f"problem must be a GemmProblem or its sizes (m, n, k); got {problem!r}")
        problem = GemmProblem.create(*problem, **described)  # type: ignore[arg-type]  # it checks each
    elif described:
        raise ShapeError(f"a GemmProblem says all of itself: pass no {', '.join(described)}, or sizes (m, n, k)")
    target = select_device(device, backend)
    return explanation(problem, target, configuration_of(config), kernel=kernel, params=params)
