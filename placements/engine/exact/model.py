"""The exact model of one PickN cycle: classes of equal clusters, the limits of domains, and the stages.

Clusters that agree in the domain of every constraint, the affinity score and *was here* form a class with
one variable. Sets are compared column by column: picks, excess of soft limits, skew, affinity, was here,
and last the overlap with the greedy picks (`docs/concepts/scheduling.md`).
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from clusters.columns import ABSENT, Bools, Codes, Ints
from fleetui.apimachinery.model import camel_case
from placements.engine.exact.solver import Program, SearchLimits, Solution
from placements.engine.scheduling.candidates import Candidates
from placements.engine.scheduling.spread.base import is_hard

STAGES = ("n", "excess", "skew", "affinity", "was-here", "closest")


@dataclass(frozen=True)
class ModelConstraint:
    """A spread constraint with at least two domains, and the counts of its domains at the start."""

    key: str
    index: int
    max_skew: int
    is_hard: bool
    values: tuple[str, ...]
    codes: Codes
    start: Ints

    @property
    def limit(self) -> int:
        """Return the largest skew without an excess: that of the start where it is above maxSkew."""
        return max(self.max_skew, int(self.start.max() - self.start.min()))

    def counts(self, picks: Ints, codes: Ints) -> Ints:
        """Return the counts per domain after these picks, counted by class."""
        has_key = codes != ABSENT
        added = np.bincount(
            codes[has_key], weights=picks[has_key], minlength=len(self.values)
        )
        return self.start + added.astype(np.int64)


@dataclass(frozen=True)
class SetColumns:
    """The columns by which two sets of picks are compared."""

    picks: int
    excess: int
    skew: int
    affinity: int
    was_here: int

    def to_plain(self) -> dict[str, int]:
        return camel_case(asdict(self))


@dataclass(frozen=True)
class BestSet:
    """How many clusters of each class are in the best set, and what was proved of it."""

    picks: Ints
    most: int
    cut_stages: tuple[str, ...]


@dataclass(frozen=True)
class ExactModel:
    """The choice of up to `needed` of the clusters that pass the filters.

    `codes` has a row per constraint and an entry per class; `class_of` has the class of each of the
    `positions`, which are those of the clusters that pass.
    """

    constraints: tuple[ModelConstraint, ...]
    needed: int
    positions: Ints
    class_of: Ints
    codes: Ints
    sizes: Ints
    affinity: Ints
    was_here: Ints
    greedy: Ints
    is_greedy: Ints

    def columns(self, picks: Ints) -> SetColumns:
        skews = [
            self._skew(constraint, picks, codes) for constraint, codes in self._pairs
        ]
        soft = [
            skew - constraint.limit
            for skew, constraint in zip(skews, self.constraints, strict=True)
            if not constraint.is_hard
        ]
        return SetColumns(
            picks=int(picks.sum()),
            excess=sum(max(0, over) for over in soft),
            skew=sum(skews),
            affinity=int(picks @ self.affinity),
            was_here=int(picks @ self.was_here),
        )

    def keeps_limits(self, picks: Ints) -> bool:
        """Return whether these numbers of picks by class exist, are needed, and break no hard limit."""
        is_possible = (picks >= 0).all() and (picks <= self.sizes).all()
        return bool(is_possible and picks.sum() <= self.needed) and all(
            self._skew(constraint, picks, codes) <= constraint.limit
            for constraint, codes in self._pairs
            if constraint.is_hard
        )

    def members(self, picks: Ints) -> Ints:
        """Return the positions of a set: of each class the greedy picks first, then the last names."""
        by_class = np.lexsort((self.is_greedy, self.class_of))
        ends = np.cumsum(self.sizes)
        chosen = [
            by_class[end - count : end]
            for end, count in zip(ends.tolist(), picks.tolist(), strict=True)
            if count
        ]
        return (
            np.sort(self.positions[np.concatenate(chosen)])
            if chosen
            else np.zeros(0, dtype=np.int64)
        )

    @property
    def _pairs(self) -> Iterable[tuple[ModelConstraint, Ints]]:
        return zip(self.constraints, self.codes, strict=True)

    def _skew(self, constraint: ModelConstraint, picks: Ints, codes: Ints) -> int:
        counts = constraint.counts(picks, codes)
        return int(counts.max() - counts.min())

    @cached_property
    def cells(self) -> tuple["ExactModel", Ints]:
        """Return the model with classes merged over affinity and was here, and the cell of each class."""
        if not len(self.sizes):
            return self, np.zeros(0, dtype=np.int64)
        codes, cell_of = _distinct(self.codes, len(self.sizes))
        sizes = np.bincount(cell_of, weights=self.sizes).astype(np.int64)
        greedy = np.bincount(cell_of, weights=self.greedy).astype(np.int64)
        nothing = np.zeros_like(sizes)
        merged = replace(
            self,
            class_of=cell_of[self.class_of],
            codes=codes,
            sizes=sizes,
            greedy=greedy,
            affinity=nothing,
            was_here=nothing,
        )
        return merged, cell_of

    def expanded(self, of_cells: Ints) -> Ints:
        """Return a set of classes for a set of cells: the highest affinity first."""
        _, cell_of = self.cells
        picks, left = np.zeros_like(self.sizes), of_cells.copy()
        for one in np.lexsort((-self.was_here, -self.affinity)).tolist():
            picks[one] = count = min(int(self.sizes[one]), int(left[cell_of[one]]))
            left[cell_of[one]] -= count
        return picks


@dataclass
class ModelProgram:
    """The program of a model: x per class, `more` variables, then lo, hi and excess per constraint."""

    model: ExactModel
    program: Program
    picks: Ints
    codes: list[Ints]
    first: int
    width: int

    @classmethod
    def of(
        cls,
        model: ExactModel,
        start: Ints,
        *,
        overlap: bool = False,
        added: Ints | None = None,
    ) -> "ModelProgram":
        """Build the rows; `added` are tuples of domains that clusters can be added to.

        With `overlap` there is a variable per class that the greedy set uses: how much of it is kept.
        """
        classes = len(model.sizes)
        kept = np.nonzero(model.greedy)[0] if overlap else np.zeros(0, dtype=np.int64)
        new = 0 if added is None else added.shape[1]
        first = classes + len(kept) + new
        constraints = model.constraints
        lo, hi, excess = (first + part * len(constraints) for part in range(3))
        room = [
            int(constraint.start.max()) + model.needed for constraint in constraints
        ]
        spare = [
            0 if constraint.is_hard else most
            for constraint, most in zip(constraints, room, strict=True)
        ]
        counts = [
            constraint.counts(start, codes)
            for constraint, codes in zip(constraints, model.codes, strict=True)
        ]
        smallest, largest = (
            [int(count.min()) for count in counts],
            [int(count.max()) for count in counts],
        )
        over = [
            max(0, high - low - constraint.limit)
            for constraint, low, high in zip(
                constraints, smallest, largest, strict=True
            )
        ]
        upper = [
            np.minimum(model.sizes, model.needed),
            model.greedy[kept],
            np.full(new, model.needed),
            np.array([*room, *room, *spare], dtype=np.int64),
        ]
        values = [
            start,
            np.minimum(start, model.greedy)[kept],
            np.zeros(new, dtype=np.int64),
            np.array([*smallest, *largest, *over], dtype=np.int64),
        ]
        program = Program(np.concatenate(upper), np.concatenate(values))
        picks = np.concatenate(
            [np.arange(classes), np.arange(classes + len(kept), first)]
        )
        of_picks = [
            *(model.codes if added is None else np.hstack([model.codes, added]))
        ]
        for at, (constraint, codes) in enumerate(
            zip(constraints, of_picks, strict=True)
        ):
            for domain in range(len(constraint.values)):
                inside = picks[codes == domain]
                at_start, signs = (
                    -int(constraint.start[domain]),
                    np.append(np.ones_like(inside), -1),
                )
                program.add_row(np.append(inside, lo + at), signs, at_start, inf)
                program.add_row(np.append(inside, hi + at), signs, -inf, at_start)
            program.add_row(
                [hi + at, lo + at, excess + at], [1, -1, -1], -inf, constraint.limit
            )
            # Without whole numbers, the rows do not imply that the fewest are at most the mean.
            program.upper[lo + at] = (
                int(constraint.start.sum()) + model.needed
            ) // len(constraint.values)
        for place, of_class in enumerate(kept.tolist()):
            program.add_row([classes + place, of_class], [1, -1], -inf, 0)
        program.add_row(picks, 1, 0, model.needed)
        return cls(model, program, picks, of_picks, first, len(program.upper))

    def cost(self, of: str) -> Ints:
        """Return the cost of each variable in a stage; `added` counts the clusters that are added."""
        cost = np.zeros(self.width, dtype=np.int64)
        classes, constraints = len(self.model.sizes), len(self.model.constraints)
        lo, hi, excess = (self.first + part * constraints for part in range(3))
        match of:
            case "n":
                cost[self.picks] = -1
            case "excess":
                cost[excess:] = 1
            case "skew":
                cost[lo:hi], cost[hi:excess] = -1, 1
            case "affinity":
                cost[:classes] = -self.model.affinity
            case "was-here":
                cost[:classes] = -self.model.was_here
            case "closest":
                cost[classes : self.first] = -1
            case "added":
                cost[classes : self.first] = 1
        return cost

    def stage(self, of: str, limits: SearchLimits) -> tuple[Ints, int, bool]:
        """Minimise a stage and keep its value; return the picks by class, the bound and if it is proved."""
        lowest = -self.model.needed if of == "n" else None
        solution = self.minimise(self.cost(of), limits, lowest=lowest)
        if of == "n":
            self.require(-solution.cost)
        return (
            solution.values[: len(self.model.sizes)],
            solution.bound,
            solution.is_proved,
        )

    def minimise(
        self, cost: Ints, limits: SearchLimits, *, lowest: int | None = None
    ) -> Solution:
        """Minimise an objective and keep its value; the next one starts at the exact lo, hi and excess."""
        solution = self.program.minimise(cost, limits, lowest=lowest)
        picks, constraints = solution.values[self.picks], self.model.constraints
        for at, (constraint, codes) in enumerate(
            zip(constraints, self.codes, strict=True), start=self.first
        ):
            counts = constraint.counts(picks, codes)
            low, high = int(counts.min()), int(counts.max())
            of_constraint = [at, at + len(constraints), at + 2 * len(constraints)]
            solution.values[of_constraint] = (
                low,
                high,
                max(0, high - low - constraint.limit),
            )
        return solution

    def require(self, picks: int) -> None:
        """Require this number of picks, and with them that the most in a domain are at least the mean."""
        self.program.add_row(self.picks, 1, picks, inf)
        upper, constraints = self.program.upper[self.picks], self.model.constraints
        for at, (constraint, codes) in enumerate(
            zip(constraints, self.codes, strict=True), start=self.first
        ):
            with_key = (
                int(constraint.start.sum()) + picks - int(upper[codes == ABSENT].sum())
            )
            self.program.lower[at + len(constraints)] = max(
                0, -(-with_key // len(constraint.values))
            )


def build_model(
    candidates: Candidates,
    needed: int,
    greedy: Codes,
    *,
    passes: Bools,
    soft: frozenset[int] = frozenset(),
) -> ExactModel:
    """Form the classes of the clusters that pass; `soft` are constraints that are not to be enforced."""
    positions = np.nonzero(passes)[0]
    constraints = tuple(
        ModelConstraint(
            constraint.topology_key,
            index,
            constraint.max_skew,
            is_hard(constraint) and index not in soft,
            groups.values,
            groups.codes[positions],
            start,
        )
        for index, (constraint, groups, start) in enumerate(
            zip(
                candidates.constraints,
                candidates.groups,
                candidates.starting_counts(),
                strict=True,
            )
        )
        if len(groups) > 1
    )
    ranked = not (
        candidates.constraints and candidates.strategy.was_here_in_first_round_only
    )
    columns: list[Ints] = [
        *(constraint.codes.astype(np.int64) for constraint in constraints),
        candidates.preference[positions].astype(np.int64),
        candidates.was_here[positions],
    ]
    classes, class_of = _distinct(np.stack(columns), len(positions))
    picked = np.zeros(len(passes), dtype=np.int64)
    picked[greedy] = 1
    count = classes.shape[1]
    return ExactModel(
        constraints=constraints,
        needed=needed,
        positions=positions,
        class_of=class_of,
        is_greedy=picked[positions],
        codes=classes[:-2],
        sizes=np.bincount(class_of, minlength=count).astype(np.int64),
        affinity=classes[-2],
        was_here=classes[-1]
        * int(ranked),  # where it is not summed, it still decides names
        greedy=np.bincount(class_of, weights=picked[positions], minlength=count).astype(
            np.int64
        ),
    )


def _distinct(columns: Ints, entries: int) -> tuple[Ints, Ints]:
    """Return the distinct entries of columns, and which of them each entry is."""
    if not len(columns) or not entries:
        return np.zeros((len(columns), min(entries, 1)), dtype=np.int64), np.zeros(
            entries, dtype=np.int64
        )
    # One number per entry: sorting whole columns is several times slower.
    of = np.zeros(entries, dtype=np.int64)
    for column in columns:
        lowest = int(column.min())
        of = np.unique(
            of * (int(column.max()) - lowest + 1) + (column - lowest),
            return_inverse=True,
        )[1]
    first = np.zeros(int(of.max()) + 1, dtype=np.int64)
    first[of[::-1]] = np.arange(entries)[::-1]
    return columns[:, first].astype(np.int64), of


def best_set(
    model: ExactModel, limits: SearchLimits, stages: Iterable[str] = STAGES
) -> BestSet:
    """Solve the stages in order, each among the best of the one before, starting from the greedy set."""
    # A stage in which sets cannot differ is left out.
    can_differ = {
        "excess": not all(constraint.is_hard for constraint in model.constraints),
        "skew": bool(model.constraints),
        "affinity": len(np.unique(model.affinity)) > 1,
        "was-here": bool(model.was_here.any()),
        "closest": bool(model.greedy.any()),
    }
    needed = [
        stage
        for stage in STAGES
        if stage in set(stages) and can_differ.get(stage, True)
    ]
    cells, _ = model.cells
    cut: list[str] = []
    on_cells = ModelProgram.of(cells, cells.greedy)
    picks, bound, is_proved = on_cells.stage("n", limits)
    most = -bound
    if not is_proved:
        cut.append("n")
    for stage in needed:
        if stage in ("excess", "skew"):
            picks, _, is_proved = on_cells.stage(stage, limits)
            cut += [] if is_proved else [stage]
    if not cells.keeps_limits(picks):
        raise InvalidSolutionError
    columns = cells.columns(picks)
    classes = model.expanded(picks)
    later = [stage for stage in needed if stage in ("affinity", "was-here", "closest")]
    if later:
        before = model.columns(model.greedy)
        if (before.picks, -before.excess, -before.skew) == (
            columns.picks,
            -columns.excess,
            -columns.skew,
        ):
            classes = max(
                classes, model.greedy, key=lambda one: int(one @ model.affinity)
            )
        program = ModelProgram.of(model, classes, overlap="closest" in later)
        program.require(columns.picks)
        used = [("excess", columns.excess), ("skew", columns.skew)]
        for stage, value in (one for one in used if one[0] in needed):
            cost = program.cost(stage)
            at = np.nonzero(cost)[0]
            program.program.add_row(at.tolist(), cost[at].tolist(), -inf, value)
        for stage in later:
            classes, _, is_proved = program.stage(stage, limits)
            cut += [] if is_proved else [stage]
    return BestSet(classes, most, tuple(cut))


class InvalidSolutionError(RuntimeError):
    """The solver returned a set that breaks a limit: a bug."""
