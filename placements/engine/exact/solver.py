"""Integer programs, solved by HiGHS: the only module that imports the solver, and only when one is solved."""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clusters.columns import Ints

_SEED = 1
_TOLERANCE = 1e-6
_INFINITE = 1e20


@dataclass
class SearchLimits:
    """The limits that are left of a search; every run uses a part of them."""

    seconds: float
    nodes: int

    @property
    def are_used_up(self) -> bool:
        return self.seconds <= 0 or self.nodes <= 0


@dataclass(frozen=True)
class Solution:
    """The best values found, their cost, and `bound`, below which no cost can be."""

    values: Ints
    cost: int
    bound: int

    @property
    def is_proved(self) -> bool:
        return self.bound >= self.cost


class Program:
    """Integer variables from `lower` to `upper`, rows over them, and one objective after the other.

    Every solution is at least as good as the `start` that is passed, which has to keep all rows: a run that
    is cut before it finds anything better returns the start.
    """

    def __init__(self, upper: Ints, start: Ints) -> None:
        self.lower, self.upper, self.values = np.zeros_like(upper), upper, start
        self._rows: list[tuple[Ints, Ints, float, float]] = []
        self._rows_passed = 0

    def add_row(
        self, columns: ArrayLike, coefficients: ArrayLike, lower: float, upper: float
    ) -> None:
        """Require lower ≤ Σ coefficient · variable ≤ upper; one coefficient holds for all columns."""
        at = np.asarray(columns, dtype=np.int64)
        self._rows.append((at, np.full(at.shape, coefficients), lower, upper))

    def minimise(
        self, cost: Ints, limits: SearchLimits, *, lowest: int | None = None
    ) -> Solution:
        """Minimise an objective and keep its value from now on; no value is below `lowest`, where known."""
        least = int(np.minimum(cost * self.lower, cost * self.upper).sum())
        least = least if lowest is None else max(least, lowest)
        solution = Solution(self.values, int(cost @ self.values), least)
        if not solution.is_proved and not limits.are_used_up:
            solution = self._solved(cost, solution, limits)
        self.values = solution.values
        used = np.nonzero(cost)[0]
        self.add_row(used, cost[used], -inf, solution.cost)
        return solution

    def _solved(self, cost: Ints, solution: Solution, limits: SearchLimits) -> Solution:
        """Solve without whole numbers, round what that leaves, and solve with them only where it takes more.

        The first value is a bound that is often reached; with whole numbers a run takes ten times as long.
        """
        self._pass_to_linear(cost)
        relaxed = _run(self._linear, limits)
        if _is_optimal(self._linear):
            bound = self._linear.getInfo().objective_function_value
            solution = self._improved(solution, cost, relaxed, bound)
            solution = self._rounded(solution, cost, relaxed, limits)
        if solution.is_proved or limits.are_used_up:
            return solution
        solver = self._whole(solution.values)
        values = _run(solver, limits)
        return self._improved(solution, cost, values, solver.getInfo().mip_dual_bound)

    def _rounded(
        self,
        solution: Solution,
        cost: Ints,
        relaxed: NDArray[Any],
        limits: SearchLimits,
    ) -> Solution:
        """Fix what is whole and a quarter of the rest, until all is whole or nothing better is possible."""
        while (
            not solution.is_proved
            and not limits.are_used_up
            and _is_optimal(self._linear)
        ):
            distance = np.abs(relaxed - np.rint(relaxed))
            rest = np.count_nonzero(distance > _TOLERANCE)
            if (
                not rest
                or self._linear.getInfo().objective_function_value
                > solution.cost - 1 + _TOLERANCE
            ):
                break
            fixed = np.argsort(distance)[: len(distance) - rest * 3 // 4].astype(
                np.int32
            )
            whole = np.rint(relaxed[fixed])
            self._linear.changeColsBounds(len(fixed), fixed, whole, whole)
            relaxed = _run(self._linear, limits)
            solution = self._improved(solution, cost, relaxed, -inf)
        self._pass_bounds()
        return solution

    def _improved(
        self, solution: Solution, cost: Ints, values: NDArray[Any], bound: float
    ) -> Solution:
        """Return a solution with the values where they are better, and with the bound where it is higher."""
        unit = int(np.gcd.reduce(cost))  # every cost is a multiple of it
        best, highest = solution.values, solution.bound
        if abs(bound) < _INFINITE:
            highest = max(
                highest,
                unit * ceil(bound / unit - _TOLERANCE * max(1, abs(bound) / unit)),
            )
        if len(values) == len(self.upper):
            rounded = np.rint(values).astype(np.int64)
            if (
                int(cost @ rounded) < solution.cost
                and ((rounded >= self.lower) & (rounded <= self.upper)).all()
                and all(
                    lower <= int(rounded[columns] @ coefficients) <= upper
                    for columns, coefficients, lower, upper in self._rows
                )
            ):
                best = rounded
        return Solution(best, int(cost @ best), highest)

    @cached_property
    def _linear(self) -> Any:
        """The program without whole numbers; each objective starts from the result of the one before."""
        import highspy  # noqa: PLC0415 -- a process that never solves does not load the solver

        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self.upper), 0
        program.col_cost_ = np.zeros(len(self.upper))
        program.col_lower_, program.col_upper_ = (
            self.lower.astype(float),
            self.upper.astype(float),
        )
        solver = _new_solver()
        solver.setOptionValue("presolve", "off")  # takes longer than it saves
        solver.passModel(program)
        return solver

    def _pass_bounds(self) -> None:
        at = np.arange(len(self.upper), dtype=np.int32)
        self._linear.changeColsBounds(
            len(at), at, self.lower.astype(float), self.upper.astype(float)
        )

    def _pass_to_linear(self, cost: Ints) -> None:
        self._pass_bounds()
        rows, self._rows_passed = self._rows[self._rows_passed :], len(self._rows)
        self._linear.changeColsCost(
            len(cost), np.arange(len(cost), dtype=np.int32), cost.astype(float)
        )
        sizes = [len(columns) for columns, *_ in rows]
        self._linear.addRows(
            len(rows),
            np.array([lower for *_, lower, _ in rows], dtype=float),
            np.array([upper for *_, upper in rows], dtype=float),
            sum(sizes),
            np.cumsum([0, *sizes])[:-1].astype(np.int32),
            np.concatenate([columns for columns, *_ in rows]).astype(np.int32),
            np.concatenate([coefficients for _, coefficients, *_ in rows]).astype(
                float
            ),
        )

    def _whole(self, start: Ints) -> Any:
        """Return a solver of the program with whole numbers, which knows the start."""
        import highspy  # noqa: PLC0415 -- see above

        program = self._linear.getLp()
        program.integrality_ = [highspy.HighsVarType.kInteger] * len(start)
        solver = _new_solver()
        solver.passModel(program)
        initial = highspy.HighsSolution()
        initial.col_value = start.astype(float)
        solver.setSolution(initial)
        return solver


def _new_solver() -> Any:
    import highspy  # noqa: PLC0415 -- see above

    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    options: dict[str, Any] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": _SEED,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.5,
    }
    # Every run knows a start already; the search for one took a third of the time.
    options["mip_heuristic_run_feasibility_jump"] = False
    for option, value in options.items():
        solver.setOptionValue(option, value)
    return solver


def _is_optimal(solver: Any) -> bool:
    return bool(solver.modelStatusToString(solver.getModelStatus()) == "Optimal")


def _run(solver: Any, limits: SearchLimits) -> NDArray[Any]:
    """Run within the limits and take from them what was used; return the values of the variables."""
    before = solver.getRunTime()
    solver.setOptionValue("time_limit", before + limits.seconds)
    solver.setOptionValue("mip_max_nodes", limits.nodes)
    solver.run()
    limits.seconds -= solver.getRunTime() - before
    limits.nodes -= max(int(solver.getInfo().mip_node_count), 0)
    return np.array(solver.getSolution().col_value)
