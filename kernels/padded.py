"""`padded`: A and B are padded with zeros to whole tiles beforehand, so that the product's loop has nothing to check."""

from __future__ import annotations

from dataclasses import replace

from gemmport.contracts.kernel import Constraint, Parameter, Parameters, Steps, ceil_div
from gemmport.contracts.register_tiles import FEW_SUMS, WHOLE_BLOCKS, RegisterTiles, tile_parameters
from gemmport.core.device import DeviceInfo
from gemmport.core.plan import ParameterValue
from gemmport.core.problem import GemmProblem, Operand, transposed, transposes
from gemmport.kernels import transpose


class Padded(RegisterTiles):
    """A group computes TSM × TSN of D, a work-item WPTM × WPTN of them, stepping along k by TSK.

    The kernel reads op(A) along m and op(B) along n, both in whole tiles. Passes lay them out so in scratch memory, transposed
    where they run along k; an operand that the batch shares, once, and one that is stored so already, not at all. D is not
    padded: the sums beyond its edges are not stored.
    """

    name = "padded"
    summary = "A and B padded to whole tiles beforehand, and no check in the loop"
    parameters = (
        *tile_parameters(),
        Parameter("PADDINGX", 32, "rows and columns of a padding pass's tile, and its work-items along x", maximum=32),
        Parameter("PADDINGY", 8, "work-items of a padding pass along y", maximum=32),
    )
    constraints = (
        *WHOLE_BLOCKS,
        FEW_SUMS,
        Constraint(
            "TSK · WPTM · WPTN % TSN = 0, so that work-items share the loads of A evenly",
            lambda TSN, TSK, WPTM, WPTN: TSK * WPTM * WPTN % TSN == 0,
        ),
        Constraint(
            "TSK · WPTM · WPTN % TSM = 0, so that work-items share the loads of B evenly",
            lambda TSM, TSK, WPTM, WPTN: TSK * WPTM * WPTN % TSM == 0,
        ),
        Constraint("PADDINGX % PADDINGY = 0", lambda PADDINGX, PADDINGY: PADDINGX % PADDINGY == 0),
        Constraint(
            "PADDINGX · PADDINGY ≤ 256, work-items that a group has on most devices",
            lambda PADDINGX, PADDINGY: PADDINGX * PADDINGY <= 256,
        ),
    )

    def defines(self, parameters: Parameters, problem: GemmProblem) -> dict[str, ParameterValue]:
        """Those of the product: without what the passes alone read, and, where there are no terms, without its loop."""
        own = {name: value for name, value in parameters.items() if name not in ("PADDINGX", "PADDINGY")}
        return {**super().defines(own, problem), "TERMS": int(problem.effective_k > 0)}

    def steps(self, problem: GemmProblem, device: DeviceInfo, parameters: Parameters) -> Steps:
        if problem.effective_k == 0:  # A and B are not read
            return super().steps(problem, device, parameters)
        sizes = (problem.m, problem.n, problem.k)
        m, n, k = (ceil_div(size, extent) * extent for size, extent in zip(sizes, self.tile(parameters), strict=True))
        panels: dict[Operand, tuple[int, int]] = {"a": (k, m), "b": (k, n)}
        turned = {"a": not transposes(problem.trans_a), "b": transposes(problem.trans_b)}  # what runs along k
        group = {"TS": parameters["PADDINGX"], "ROWS": parameters["PADDINGY"]}
        made = {
            operand: transpose.prepare(
                problem, operand, f"{operand}_padded",
                {**group, "TRANSPOSE": int(turned[operand]), "STAGED": int(turned[operand])}, panel,
            )
            for operand, panel in panels.items()
            if turned[operand] or problem.stored_shape(operand) != panel
        }  # fmt: skip
        layouts = {operand: made[operand].layout if operand in made else problem.layout(operand) for operand in panels}
        whole = replace(
            problem,
            k=k,
            trans_a=transposed(problem.trans_a) if turned["a"] else problem.trans_a,
            trans_b=transposed(problem.trans_b) if turned["b"] else problem.trans_b,
            a=layouts["a"],
            b=layouts["b"],
        )
        product = self.product(whole, parameters, {operand: each.scratch.name for operand, each in made.items()})
        return Steps([*(each.launch for each in made.values()), product], [each.scratch for each in made.values()])


VARIANT = Padded()
