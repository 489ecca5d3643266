"""What is done to operands before a kernel reads them, whichever kernel that is: a pass rounds them to the precision asked for.

A kernel that rounds operands itself, as it loads them, is given the problem as it was asked; others, that of the operands that
the pass has written. One that multiplies numbers of the precision in their own type gets them in that.
"""

from __future__ import annotations

from dataclasses import replace

from gemmport.contracts.device_model import DeviceModel, Prediction
from gemmport.contracts.kernel import KernelVariant, Parameters, Predictor, Steps
from gemmport.core.device import DeviceInfo
from gemmport.core.dtypes import DTYPES, FLOAT32, DType
from gemmport.core.problem import GemmProblem
from gemmport.kernels import convert


def as_taken(variant: KernelVariant, problem: GemmProblem) -> GemmProblem:
    """The problem as a kernel computes it."""
    return problem if problem.precision in variant.precisions else convert.converted(problem, _stored(variant, problem))


def steps(variant: KernelVariant, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
    """The steps of a product that has elements, from operands as they are given."""
    taken = as_taken(variant, problem)
    product = variant.steps(taken, device, parameters)
    if taken is problem:
        return product
    return convert.PASS.before(problem, product, device.max_work_group, _stored(variant, problem))


def predicted(
    variant: KernelVariant, problem: GemmProblem, device: DeviceInfo, model: DeviceModel, parameters: Parameters
) -> Prediction:
    """What a product that has elements is expected to take, with what is done to its operands before; see
    `KernelVariant.predicted`.
    """
    return predictor(variant, problem, device, model)(parameters)


def predictor(variant: KernelVariant, problem: GemmProblem, device: DeviceInfo, model: DeviceModel) -> Predictor:
    """`predicted` for many parameters of one kernel; see `KernelVariant.predictor`."""
    taken = as_taken(variant, problem)
    predict = variant.predictor(taken, device, model)
    moved = 0 if taken is problem else convert.moved_bytes(problem, _stored(variant, problem))
    if not moved:
        return predict
    seconds = model.launch + moved / model.copy_bandwidth

    def with_conversion(parameters: Parameters) -> Prediction:
        prediction = predict(parameters)
        parts = {**prediction.parts, "conversion": seconds}
        return replace(prediction, parts=parts, seconds=prediction.seconds + seconds)

    return with_conversion


def _stored(variant: KernelVariant, problem: GemmProblem) -> DType | None:
    """The type of the precision, where a kernel takes operands of float32 in it; None: in their own."""
    takes = problem.dtype == FLOAT32 and problem.precision in variant.narrow_precisions
    return DTYPES[problem.precision] if takes else None
