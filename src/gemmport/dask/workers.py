"""`WorkerDevice`: which device each worker of a cluster computes on, opened before its first task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmport.api.prepare import prepare
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import LibraryUnavailableError, ParameterError
from gemmport.core.problem import GemmProblem
from gemmport.dask.tasks import CHOSEN
from gemmport.execution.selection import get_backend

try:
    from distributed import Worker, WorkerPlugin
except ImportError as error:
    raise LibraryUnavailableError(
        f"gemmport.dask.WorkerDevice needs Dask's scheduler ({error}): pip install 'gemmport[dask]'"
    ) from error


class WorkerDevice(WorkerPlugin):  # type: ignore[misc]  # Any to a type checker
    """Opens a device on each worker, now and when one comes later, and compiles what the first products need.

        client.register_plugin(gemmport.dask.WorkerDevice("nvidia", problems=[gp.GemmProblem.create(4096, 4096, 4096)]))

    Args:
        device: of every worker, as of `gemmport.get_backend`; or several, which are dealt by the workers' names, which must be
            numbers then, as `LocalCluster` gives them: worker 3 of two devices takes the second. Default: the worker's own
            GEMMPORT_DEVICE, or its best.
        backend: as of `gemmport.get_backend`.
        problems: products of chunks, prepared by `gemmport.prepare`.

    Raises:
        ParameterError, on the client: a worker has no number to be dealt a device by.
        DeviceNotFoundError and others of `gemmport.get_backend` and `gemmport.prepare`, on the client: of a worker.
    """

    name = "gemmport-device"
    idempotent = False

    def __init__(
        self,
        device: str | int | DeviceInfo | Sequence[str | int | DeviceInfo] | None = None,
        backend: str | None = None,
        problems: Sequence[GemmProblem] = (),
    ) -> None:
        self.devices = list(device) if isinstance(device, list | tuple) else [device]
        self.backend = backend
        self.problems = list(problems)

    def setup(self, worker: Worker) -> None:
        """On a worker, when it starts or the plugin comes to it."""
        number = 0
        if len(self.devices) > 1:
            try:
                number = int(worker.name)
            except (TypeError, ValueError):
                raise ParameterError(
                    f"a worker must be named by a number where devices are dealt; got {worker.name!r}: set its GEMMPORT_DEVICE"
                ) from None
        chosen: dict[str, Any] = {"backend": self.backend, "device": self.devices[number % len(self.devices)]}
        backend = get_backend(**chosen)
        for problem in self.problems:
            prepare(problem, backend.device)
        CHOSEN[worker.address] = chosen

    def teardown(self, worker: Worker) -> None:
        """When the worker or the plugin goes."""
        CHOSEN.pop(worker.address, None)
