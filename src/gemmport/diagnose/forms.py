"""Whether a form of a kernel that only simulations have shown to be right is right on a device: exact products, in poisoned
memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gemmport.backends.base import Backend
from gemmport.checking.guarded_run import try_plan
from gemmport.checking.reference import reference
from gemmport.checking.verification import check_exact, exact_operands, random_operands, rounds
from gemmport.contracts.kernel import Form
from gemmport.core.problem import GemmProblem
from gemmport.planning.lookup import load_configuration
from gemmport.planning.planner import make_plan

SIZES = ((128, 128, 256), (65, 63, 66), (1, 130, 7))
"""m, n and k: whole tiles, and steps; edges along all of them; less than a tile."""

OPS = tuple(itertools.product("NT", "NT"))


def fault(backend: Backend, form: Form) -> str:
    """What is wrong with the products of a form on a device, the first that is; empty where all are right.

    Raises:
        ParameterError, UnsupportedError: the device cannot take the form. CompileError, LaunchError: it does not run.
    """
    configuration = load_configuration().of_models()
    for problem in _problems(form):
        plan = make_plan(problem, backend.device, configuration, kernel=form.kernel, params=form.parameters)
        operands = (exact_operands if rounds(problem) else random_operands)(problem, seed=0)
        trial = try_plan(backend, plan, operands)
        if trial.stray:
            return f"{problem}: {trial.stray}"
        check = check_exact(reference(problem, operands), trial.d)
        if not check.passed:
            return f"{problem}: {check.detail}"
    return ""


def _problems(form: Form) -> Iterator[GemmProblem]:
    for (m, n, k), (op_a, op_b) in itertools.product(SIZES, OPS):
        yield GemmProblem.create(
            m, n, k, dtype=form.dtype, output=form.output, trans_a=op_a, trans_b=op_b, alpha=2.0, beta=-1.0
        )
