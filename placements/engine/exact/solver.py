"""Integer programs, solved by HiGHS: the only module that imports the solver, and only when one is solved."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import ceil, inf

import numpy as np

from clusters.columns import Ints

_SEED = 1
_TOLERANCE = 1e-6
_INFINITE = 1e20


def solver_version() -> str:
    """Return the version of the solver without importing it."""
    return version("highspy")


@dataclass
class SearchLimits:
    """What a search may still use of the solver; every run takes its part."""

    seconds: float
    nodes: int


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
    """Integer variables from 0 to `upper`, rows over them, and one objective after the other.

    Every solution is at least as good as the `start` that is passed, which has to keep all rows: a run that
    is cut before it finds anything better returns the start.
    """

    def __init__(self, upper: Ints, start: Ints) -> None:
        self.upper, self.values = upper, start
        self._rows: list[tuple[Sequence[int], Sequence[int], float, float]] = []

    def add_row(
        self, columns: Sequence[int], coefficients: Sequence[int], lower: float, upper: float
    ) -> None:
        """Require lower ≤ Σ coefficient · variable ≤ upper."""
        self._rows.append((columns, coefficients, lower, upper))

    def minimise(self, cost: Ints, limits: SearchLimits, *, lowest: int | None = None) -> Solution:
        """Minimise an objective and keep its value from now on; no value is below `lowest`, where known."""
        start_cost = int(cost @ self.values)
        least = int(np.minimum(cost * self.upper, 0).sum())
        lowest = least if lowest is None else max(least, lowest)
        if start_cost == lowest or limits.seconds <= 0 or limits.nodes <= 0:
            solution = Solution(self.values, start_cost, lowest)
        else:
            solution = self._solved(cost, start_cost, lowest, limits)
        self.values = solution.values
        used = np.nonzero(cost)[0]
        self.add_row(used.tolist(), cost[used].tolist(), -inf, solution.cost)
        return solution

    def _solved(self, cost: Ints, start_cost: int, lowest: int, limits: SearchLimits) -> Solution:
        import highspy  # noqa: PLC0415 -- a process that never solves does not load the solver

        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self.upper), len(self._rows)
        program.col_cost_ = cost.astype(float)
        program.col_lower_, program.col_upper_ = np.zeros(len(self.upper)), self.upper.astype(float)
        program.integrality_ = [highspy.HighsVarType.kInteger] * len(self.upper)
        program.row_lower_ = np.array([row[2] for row in self._rows], dtype=float)
        program.row_upper_ = np.array([row[3] for row in self._rows], dtype=float)
        matrix = program.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = np.cumsum([0, *(len(row[0]) for row in self._rows)], dtype=np.int32)
        matrix.index_ = np.array([column for row in self._rows for column in row[0]], dtype=np.int32)
        matrix.value_ = np.array([number for row in self._rows for number in row[1]], dtype=float)

        highs = highspy.Highs()  # type: ignore[no-untyped-call]
        options = {"output_flag": False, "threads": 1, "random_seed": _SEED, "mip_rel_gap": 0.0}
        options |= {"mip_abs_gap": 0.5, "mip_max_nodes": limits.nodes, "time_limit": limits.seconds}
        for option, value in options.items():
            highs.setOptionValue(option, value)
        highs.passModel(program)
        start = highspy.HighsSolution()
        start.col_value = self.values.astype(float)
        highs.setSolution(start)
        highs.run()

        information = highs.getInfo()
        limits.seconds -= highs.getRunTime()
        limits.nodes -= max(int(information.mip_node_count), 0)
        found = np.array(highs.getSolution().col_value)
        values = np.rint(found).astype(np.int64) if len(found) == len(self.upper) else self.values
        is_within = bool(((values >= 0) & (values <= self.upper)).all()) and all(
            lower <= int(values[list(columns)] @ np.array(coefficients)) <= upper
            for columns, coefficients, lower, upper in self._rows
            if columns
        )
        if int(cost @ values) > start_cost or not is_within:
            values = self.values
        bound = information.mip_dual_bound
        proved = ceil(bound - _TOLERANCE) if abs(bound) < _INFINITE else lowest
        return Solution(values, int(cost @ values), max(lowest, proved))
