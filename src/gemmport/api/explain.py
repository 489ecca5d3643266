"""`explain`: why a product is computed the way it is, and how long that should take; `explain_cluster`: on many devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Literal, overload

from gemmport.api.dealt import dealt_outlook
from gemmport.api.plans import Config, configuration_of
from gemmport.api.precision import current
from gemmport.api.product import Choice
from gemmport.contracts.kernel import Parameters
from gemmport.contracts.named_devices import CHIPS, chip_of
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import FLOAT32, as_dtype
from gemmport.core.errors import DeviceNotFoundError, ShapeError, UnsupportedError
from gemmport.core.problem import GemmProblem
from gemmport.core.units import as_bytes
from gemmport.execution.selection import select_device
from gemmport.multidevice.outlook import Outlook, Placement, checked
from gemmport.multidevice.selection import Devices
from gemmport.planning.cluster import Cluster, ClusterExplanation
from gemmport.planning.cluster import explain_cluster as cluster_explanation
from gemmport.planning.explanation import Explanation
from gemmport.planning.explanation import explain as explanation
from gemmport.planning.planner import AUTO


@overload
def explain(
    problem: GemmProblem | Sequence[int],
    device: DeviceInfo | str | int | None = None,
    *,
    backend: str | None = None,
    devices: None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
    device_memory: int | str | None = None,
    placement: Literal["host"] = "host",
    **described: object,
) -> Explanation: ...
@overload
def explain(
    problem: GemmProblem | Sequence[int],
    device: None = None,
    *,
    backend: str | None = None,
    devices: Devices,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
    device_memory: int | str | None = None,
    placement: Placement = "host",
    **described: object,
) -> Outlook: ...
def explain(
    problem: GemmProblem | Sequence[int],
    device: DeviceInfo | str | int | None = None,
    *,
    backend: str | None = None,
    devices: Devices | None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
    device_memory: int | str | None = None,
    placement: Placement = "host",
    **described: object,
) -> Explanation | Outlook:
    """Why a product is computed on a device as it is, and how long that is expected to take. Nothing is run.

    `print` shows it as one page; its attributes are the facts, and `to_dict` makes plain data of them.

    Args:
        problem: from `GemmProblem.create`, or its sizes (m, n, k).
        device: from `devices()`, or built by hand, which need not be here; or a description, as of `get_backend`; default: the
            best.
        backend: "cuda", "opencl" or "auto".
        devices: several, as of `gemm`, or built by hand: whether it pays to deal the product to them, and what is expected.
        kernel, params, config: as `plan`.
        device_memory: as `gemm`: in which tiles arrays on the host pass through the device, if they do, is its `schedule`; of
            several, how the first tile passes through each is its `passing`.
        placement: of several devices, where A, B, C and the result are: "host"; "first", on the first device; "rows" or
            "columns", in shards on all of them. The outlook's `links` tells the bytes that travel.
        described: of a problem of sizes, what else `GemmProblem.create` takes: batch, dtype, output, trans_a, …; `precision` by
            default as of `gemm`.

    Raises:
        ShapeError: sizes that are not three; with `devices`, nothing to compute. ParameterError: `device_memory` is no
            number of bytes. Others as `plan` and `get_backend`.
    """
    asked = _problem(problem, described, config)
    memory = None if device_memory is None else as_bytes("device_memory", device_memory)
    if devices is not None:
        if device is not None:
            raise UnsupportedError(f"device must be None where devices are named; got {device!r}: add it to devices")
        return dealt_outlook(asked, devices, backend, Choice(kernel, params, config), memory, checked(placement))
    if placement != "host":
        raise UnsupportedError(
            f"placement must be 'host' with one device; got {placement!r}: name several with devices="
        )
    target = select_device(device, backend)
    return explanation(asked, target, configuration_of(config), kernel=kernel, params=params, device_memory=memory)


def explain_cluster(
    problem: GemmProblem | Sequence[int],
    cluster: Cluster | str,
    device: DeviceInfo | str | int | None = None,
    *,
    backend: str | None = None,
    kernel: str = AUTO,
    params: Parameters | None = None,
    config: Config = None,
    **described: object,
) -> ClusterExplanation:
    """How long a product would take on a cluster of alike devices, what moves between them, and how much memory each needs, by
    1-D, 2-D and 2.5-D schedules beside the least that any moves. Nothing is run.

    `print` shows it as one page; its attributes are the facts, and `to_dict` makes plain data of them.

    Args:
        problem: from `GemmProblem.create`, or its sizes (m, n, k).
        cluster: such as "nodes=64,gpus=8,link=450GB/s,net=50GB/s" (`gemmport.planning.cluster.KEYS`).
        device: as `explain`; or a chip that configurations have a model of, such as "H200", which need not be here.
        backend, kernel, params, config, described: as `explain`.

    Raises:
        ParameterError: a cluster that is described wrongly.
        DeviceMemoryError: no schedule has room; it says how many nodes are needed.
        ShapeError: sizes that are not three, a batch, or a product of nothing. Others as `explain`.
    """
    asked = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    target = chip_or_device(device, backend)
    return cluster_explanation(
        _problem(problem, described, config), asked, target, configuration_of(config), kernel=kernel, params=params
    )


def chip_or_device(device: DeviceInfo | str | int | None, backend: str | None) -> DeviceInfo:
    """A chip that need not be here, by its name; else a device that is here.

    Raises:
        DeviceNotFoundError: there is neither; it names the chips.
    """
    if isinstance(device, str) and (chip := chip_of(device)) is not None:
        return chip
    try:
        return select_device(device, backend)
    except DeviceNotFoundError as error:
        raise DeviceNotFoundError(f"{error}; of chips that need not be here there are {', '.join(CHIPS)}") from error


def _problem(
    problem: GemmProblem | Sequence[int], described: Mapping[str, object], config: Config
) -> GemmProblem:  # fmt: skip
    if not isinstance(problem, GemmProblem):
        if isinstance(problem, str) or not isinstance(problem, Sized) or len(problem) != 3:
            raise ShapeError(f"problem must be a GemmProblem or its sizes (m, n, k); got {problem!r}")
        if described.get("precision") is None:  # as of `gemm`
            dtype = as_dtype(described.get("dtype", FLOAT32))
            described = {**described, "precision": Choice(config=config, within=current()).precision_of(dtype)}
        return GemmProblem.create(*problem, **described)  # type: ignore[arg-type]  # it checks each
    if described:
        raise ShapeError(f"a GemmProblem says all of itself: pass no {', '.join(described)}, or sizes (m, n, k)")
    return problem
