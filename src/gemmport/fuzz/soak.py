"""Products for hours, with errors injected into them: whether each result is right, and the process takes no more and more."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import numpy as np

import gemmport as gp
from gemmport.backends.base import Backend
from gemmport.backends.objects import Program
from gemmport.checking.verification import HostArray
from gemmport.core.device import DeviceInfo
from gemmport.core.errors import GemmportError
from gemmport.fuzz.faulty import FaultyBackend, Operation
from gemmport.runtime.child_processes import Conversation, scratch_folder

Way = Literal["host arrays", "device arrays", "two queues", "matmul", "named kernel"]
"""How a product is asked for."""

MOST_FAULTS = 20
"""Faults after which a soak stops."""

_PRODUCTS = 6
"""Sizes and types, which come again and again: new ones would be compiled, and kept."""

_STRIKES = 0.3
"""How often an error is injected."""

_COMPILATIONS = 100
"""Compilations that fail, all over the time. What is compiled again then, some runtimes never give back (PoCL 3.0)."""

_WARM_UP = 1 / 3
"""The part of the samples that is not judged: pools fill up. Everything was compiled before the first."""

LEAST_SAMPLES = 24
"""That are taken, however few there is time for: of fewer, nothing is said about what grows."""

_SILENCE = 300.0
"""Seconds without a sample after which a process hangs."""

_C = ctypes.CDLL(None) if os.name == "posix" else None

ALLOWED: Mapping[str, tuple[float, float]] = {
    "rss_bytes": (16 * 2**20, 0.02),
    "handles": (3, 0.0),
    "threads": (3, 0.0),
}
"""What each may be more at the end than after the warm-up, and in parts of what it was: products are under way, and allocators
keep some memory.
"""


@dataclass(frozen=True)
class Sample:
    """What the process takes at a time: seconds since the start, products so far, bytes of memory that are resident, file
    descriptors, threads. What the system does not tell is 0.
    """

    seconds: float
    products: int
    rss_bytes: int
    handles: int
    threads: int

    @classmethod
    def now(cls, seconds: float, products: int) -> Sample:
        """That of this process, once what nobody needs is collected, and given back to the system where that is glibc's."""
        gc.collect()
        if trim := getattr(_C, "malloc_trim", None):
            trim(0)
        own = Path("/proc/self")
        if not (own / "statm").exists():
            return cls(seconds, products, 0, 0, threading.active_count())
        pages = int((own / "statm").read_text(encoding="ascii").split()[1])
        counts = (len(os.listdir(own / name)) for name in ("fd", "task"))
        return cls(seconds, products, pages * os.sysconf("SC_PAGE_SIZE"), *counts)


@dataclass(frozen=True)
class Growth:
    """What something was after the warm-up and in the end, and how much more it may be."""

    first: float
    last: float
    allowed: float

    @property
    def grows(self) -> bool:
        """Whether it is too much more."""
        return self.last - self.first > self.allowed


def growth(samples: Sequence[Sample]) -> dict[str, Growth]:
    """What the process takes in the first and in the last third of the samples after the warm-up; empty of too few samples.

    Of memory that is the median. Of handles and threads it is the least: compilers have some for a while; what is lost stays.
    """
    judged = samples[int(len(samples) * _WARM_UP) :]
    third = len(judged) // 3
    if not third:
        return {}
    found = {}
    for name, (least, part) in ALLOWED.items():
        values = [getattr(sample, name) for sample in judged]
        level = median if name == "rss_bytes" else min
        first, last = level(values[:third]), level(values[-third:])
        found[name] = Growth(first, last, max(least, part * first))
    return found


@dataclass(frozen=True)
class SoakFault:
    """What must not be: "wrong" (a result), "foreign" (another library's exception), "error" (one where none was injected),
    "warning" (of the runtime's binding: something was lost), "crash", "hang".
    """

    kind: str
    reason: str


@dataclass
class SoakReport:
    """What came of a soak.

    Attributes:
        ways: right products by how they were asked for.
        raised: errors that were injected, by operation and by what the caller got: an exception's name, or "nothing" where
            the product was computed another way.
    """

    device: DeviceInfo
    seed: int
    seconds: float = 0.0
    ways: Counter[str] = field(default_factory=Counter)
    raised: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[SoakFault] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    @property
    def growth(self) -> dict[str, Growth]:
        """See `growth`."""
        return growth(self.samples)

    @property
    def passed(self) -> bool:
        """Whether something was computed, nothing is wrong and nothing grows."""
        return bool(self.ways) and not self.faults and not any(each.grows for each in self.growth.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "device": self.device.to_dict(),
            "seed": self.seed,
            "seconds": self.seconds,
            "passed": self.passed,
            "products": sum(self.ways.values()),
            "ways": dict(self.ways),
            "raised": {operation: dict(counter) for operation, counter in self.raised.items()},
            "growth": {name: {**asdict(each), "grows": each.grows} for name, each in self.growth.items()},
            "faults": [asdict(fault) for fault in self.faults],
            "samples": [asdict(sample) for sample in self.samples],
        }


@dataclass(frozen=True)
class SoakOptions:
    """How long, by how many threads, and what is drawn from."""

    seconds: float
    seed: int = 0
    threads: int = 4

    @property
    def between(self) -> float:
        """Seconds from one sample to the next."""
        return min(max(self.seconds / 200, 0.1), 60.0)


def run_soak(
    device: DeviceInfo, options: SoakOptions, progress: Callable[[SoakReport], None] = lambda _: None
) -> SoakReport:
    """Soaks a device, in a process of its own.

    Args:
        progress: told the report after every sample.
    """
    report = SoakReport(device, options.seed)
    with scratch_folder("gemmport-soak-") as cache:
        environment = {**os.environ, "GEMMPORT_CACHE_DIR": cache}
        with Conversation([sys.executable, "-m", "gemmport.fuzz.soak_worker"], environment) as worker:
            worker.tell({"backend": device.backend, "device": device.selector, **asdict(options)})
            while True:
                try:
                    message = worker.hear(_SILENCE)
                except TimeoutError:
                    report.faults.append(SoakFault("hang", f"no sample for {_SILENCE:g} s"))
                    return report
                if message is None:
                    report.faults.append(SoakFault("crash", worker.last_words()))
                    return report
                if "end" in message:
                    return report
                report.seconds = message["sample"]["seconds"]
                report.samples.append(Sample(**message["sample"]))
                report.ways = Counter(message["ways"])
                report.raised = {operation: Counter(counts) for operation, counts in message["raised"].items()}
                report.faults = [SoakFault(**fault) for fault in message["faults"]]
                progress(report)


@dataclass(frozen=True)
class Product:
    """A product of small whole numbers, which no order of summation rounds."""

    a: HostArray
    b: HostArray
    expected: HostArray

    @classmethod
    def draw(cls, rng: np.random.Generator, dtype: str) -> Product:
        """Any, of up to 100 rows, columns and terms."""
        m, n, k = (int(x) for x in rng.integers(1, 100, 3))
        a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n)))
        return cls(a, b, a @ b)

    def compute(self, way: Way, backend: Backend, queues: Sequence[Any]) -> HostArray:
        """The product, asked for in some way.

        Raises:
            GemmportError: the device refused.
        """
        match way:
            case "host arrays":
                result = gp.gemm(self.a, self.b, device=backend.device)
            case "matmul":
                result = gp.matmul(self.a, self.b, device=backend.device)
            case "named kernel":
                result = gp.gemm(self.a, self.b, device=backend.device, kernel="tiled", params={"TS": 4})
            case "device arrays":
                result = gp.gemm(backend.asarray(self.a), backend.asarray(self.b)).get()
            case "two queues":
                a, b, unit = (backend.asarray(x) for x in (self.a, self.b, np.eye(self.b.shape[1], dtype=self.b.dtype)))
                result = gp.gemm(gp.gemm(a, b, queue=queues[0]), unit, queue=queues[1]).get()
        return np.asarray(result)


class Soak:
    """Threads that compute products and inject errors, until they are told to stop."""

    def __init__(self, backend: FaultyBackend, options: SoakOptions) -> None:
        """Args: backend: the one that `get_backend` gives for its device."""
        self.backend, self.options = backend, options
        self.report = SoakReport(backend.device, options.seed)
        rng = np.random.default_rng(options.seed)
        types = ("float32", "int32", *(("float64",) if "float64" in backend.device.computes else ()))
        self.products = [Product.draw(rng, types[number % len(types)]) for number in range(_PRODUCTS)]
        self.stopped = threading.Event()
        self._compilations = 0
        self._lock = threading.Lock()

    def run(self, tell: Callable[[SoakReport], None] = lambda _: None) -> SoakReport:
        """Computes each product once in each way and lets each operation fail once, then goes on with any until the time is up,
        with `LEAST_SAMPLES`, or `MOST_FAULTS` were found.

        Args:
            tell: told the report after every sample.
        """
        queues = [self.backend.new_queue() for _ in range(2)]
        for product, way in itertools.product(self.products, get_args(Way)):
            self._compute(product, way, queues)
        for operation in get_args(Operation):
            self._strike(operation, 0, self.products[0], "device arrays", queues)
        started = time.monotonic()
        own = [[self.backend.new_queue() for _ in range(2)] for _ in range(self.options.threads)]
        threads = [threading.Thread(target=self._work, args=each) for each in enumerate(own)]
        showed, warnings.showwarning = warnings.showwarning, self._note_warning
        for thread in threads:
            thread.start()
        try:
            while not self.stopped.wait(self.options.between):
                self.report.seconds = time.monotonic() - started
                with self._lock:
                    products = sum(self.report.ways.values())
                    self.report.samples.append(Sample.now(self.report.seconds, products))
                    tell(self.report)
                is_over = self.report.seconds >= self.options.seconds and len(self.report.samples) >= LEAST_SAMPLES
                if is_over or len(self.report.faults) >= MOST_FAULTS:
                    break
        finally:
            self.stopped.set()
            for thread in threads:
                thread.join()
            warnings.showwarning = showed
        return self.report

    def _work(self, number: int, queues: Sequence[Any]) -> None:
        rng = np.random.default_rng([self.options.seed, number])
        try:
            while not self.stopped.is_set():
                self.step(rng, queues)
        except Exception:  # noqa: BLE001 - a thread that is gone would not be missed
            self._note(SoakFault("foreign", traceback.format_exc()))
            self.stopped.set()

    def step(self, rng: np.random.Generator, queues: Sequence[Any]) -> None:
        """Computes a product, some while an error is injected."""
        product = self.products[int(rng.integers(len(self.products)))]
        way: Way = get_args(Way)[int(rng.integers(len(get_args(Way))))]
        if rng.random() < _STRIKES:
            operation: Operation = get_args(Operation)[int(rng.integers(len(get_args(Operation))))]
            before = int(rng.integers(3))
            if operation != "compilation" or self._may_compile():
                self._strike(operation, before, product, way, queues)
        else:
            self._compute(product, way, queues)

    def _compute(self, product: Product, way: Way, queues: Sequence[Any]) -> None:
        """Computes a product to which nothing happens."""
        try:
            result = product.compute(way, self.backend, queues)
        except GemmportError as error:
            self._note(SoakFault("error", f"{way}: {type(error).__name__}: {error}"))
        except Exception:  # noqa: BLE001 - whatever is raised that is not ours is what is looked for
            self._note(SoakFault("foreign", f"{way}: {traceback.format_exc()}"))
        else:
            self._compare(product, way, result)

    def _strike(
        self, operation: Operation, before: int, product: Product, way: Way, queues: Sequence[Any]
    ) -> None:  # fmt: skip
        """Computes a product while an operation fails, and again."""
        forgotten: Mapping[str, Program] = {}
        if operation == "compilation":
            before, way, forgotten = 0, "named kernel", self.backend.forget()
        self.backend.faults.arm(operation, before)
        raised = "nothing"
        try:
            result = product.compute(way, self.backend, queues)
        except GemmportError as error:
            raised = type(error).__name__
        except Exception:  # noqa: BLE001 - likewise
            raised = "foreign"
            self._note(SoakFault("foreign", f"{way}, {operation} fails: {traceback.format_exc()}"))
        else:
            self._compare(product, way, result)
        if self.backend.faults.disarm():
            with self._lock:
                self.report.raised.setdefault(operation, Counter())[raised] += 1
        self._compute(product, way, queues)
        self.backend.remember(forgotten)

    def _may_compile(self) -> bool:
        with self._lock:
            due = self._compilations < _COMPILATIONS * self.report.seconds / self.options.seconds
            self._compilations += due
        return due

    def _compare(self, product: Product, way: Way, result: HostArray) -> None:
        if np.array_equal(result, product.expected):
            with self._lock:
                self.report.ways[way] += 1
        else:
            sizes = "×".join(map(str, (*product.expected.shape, product.a.shape[1])))
            wrong = np.argwhere(result != product.expected) if result.shape == product.expected.shape else result.shape
            self._note(SoakFault("wrong", f"{way}: {product.a.dtype} {sizes}: {str(wrong[:4]).replace(chr(10), '')}"))

    def _note(self, fault: SoakFault) -> None:
        with self._lock:
            self.report.faults.append(fault)

    def _note_warning(self, message: Warning | str, *_: object, **__: object) -> None:
        """In place of `warnings.showwarning`, which is called once for each place in the code."""
        self._note(SoakFault("warning", str(message)))
