"""Findings of the checks, their fixes, and what a rule can read (`rules/foresight.md#checks`)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from rapidfuzz.distance import OSA

from clusters.columns import Bools
from clusters.fleet import Fleet
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.words import names_and_more
from placements.engine.advice.changes import Edit, edited
from placements.engine.checks.predicates import AssertionResult
from placements.engine.exact.record import ExactRecord, ExactVerdict, inline_search
from placements.engine.overlaps import Overlap
from placements.engine.scheduling.candidates import filter_columns
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.policy import PlacementPolicy, PlacementType
from placements.manifests.strategy import RollingUpdate

MOST_RUNS = 64
MOST_SECONDS = 1.0
"""Limits of the runs without a part of the policy, for one placement."""
MOST_NAMES = 5

Keys = tuple[str | int, ...]
Evidence = tuple[tuple[str, str], ...]


class Severity(StrEnum):
    """How much a finding matters, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Needs(StrEnum):
    """What a rule reads: the labels of a fleet, overrides, or the policy of a placement and more.

    That is a policy alone, a policy on a fleet, its decision, an exact search, or the results of assertions.
    Rules about a change read what it does to one placement, or to all together.
    """

    LABELS = "labels"
    OVERRIDES = "overrides"
    POLICY = "policy"
    FLEET = "fleet"
    DECISION = "decision"
    EXACT = "exact"
    ASSERTIONS = "assertions"
    CHANGE = "change"
    CHANGES = "changes"


OF_FLEET = frozenset({Needs.LABELS, Needs.OVERRIDES})
"""What rules read that are about no placement."""
OF_PLACEMENT = frozenset(
    {Needs.POLICY, Needs.FLEET, Needs.DECISION, Needs.EXACT, Needs.ASSERTIONS}
)
"""What rules read that examine a placement."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that removes a finding; a person confirms it.

    `edits` set fields of the spec of the placement, or remove them with None; `labels` those of clusters.
    Without either it is rescheduling with few moves.
    """

    words: str
    edits: tuple[tuple[Keys, Any], ...] = ()
    labels: tuple[tuple[str, str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found. Findings with the same evidence have one cause; `caused` are those below it.

    `code` is that of the warning which says the same beside a manifest.
    """

    rule: str
    severity: Severity
    path: str
    message: str
    evidence: Evidence = ()
    fix: Fix | None = None
    caused: tuple["Finding", ...] = ()
    code: str = ""


class NotCheckedError(Exception):
    """A rule could not be checked within its budget."""


@dataclass
class Case:
    """A placement on a fleet, decided without its bindings; `strategy` is that of rolling updates.

    `kept` are the positions of clusters that stay selected, whether they pass the filters or not.
    `placed` is how many clusters have the placement, which stay selected.
    `overlaps`: what other placements apply to the same clusters, too.
    `is_timed`: it selects objects whose readiness cannot be observed, so that each update lasts the period.
    `asserted` are the results of its assertions.
    `clock` returns seconds; without one the number of runs is the only limit.
    """

    cycle: Cycle
    strategy: RollingUpdate | None = None
    clock: Callable[[], float] = float
    kept: Collection[int] = ()
    placed: int = 0
    overlaps: Collection[Overlap] = ()
    is_timed: bool = False
    asserted: Collection[AssertionResult] = ()
    runs: int = 0
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.until = self.clock() + MOST_SECONDS

    @property
    def fleet(self) -> Fleet:
        return self.cycle.fleet

    @property
    def policy(self) -> PlacementPolicy:
        return self.cycle.policy

    @property
    def is_pick_n(self) -> bool:
        return self.policy.placement_type is PlacementType.PICK_N

    @cached_property
    def decision(self) -> Decision:
        return schedule(self.cycle)

    @cached_property
    def passes(self) -> Bools:
        passes = self.fleet.is_eligible.copy()
        for column in filter_columns(self.cycle, profile_of(self.cycle)).values():
            passes &= column
        return passes

    @cached_property
    def candidates(self) -> int:
        """Return how many clusters pass all filters or stay selected."""
        return len({*self.passes.nonzero()[0].tolist(), *self.kept})

    @cached_property
    def exact(self) -> ExactRecord | None:
        """Return the exact search of an unfulfilled decision, None where it is not fast or not possible."""
        record = inline_search(self.decision)
        return (
            None
            if record is not None and record.verdict is ExactVerdict.OPEN
            else record
        )

    def has_no_effect(self, edit: Edit) -> bool:
        """Return whether an edit leaves the picks as they are. Raise NotCheckedError beyond the budget.

        Where nothing is picked, the effect of a part of the policy is unknown.
        """
        if not self.decision.picked_names:
            return False
        if self.runs >= MOST_RUNS or self.clock() > self.until:
            raise NotCheckedError
        self.runs += 1
        try:
            other = schedule(edited(self.cycle, edit))
        except InvalidManifest:
            return False
        before = (set(self.decision.picked_names), self.decision.is_fulfilled)
        return (set(other.picked_names), other.is_fulfilled) == before


Check = Callable[[Case], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; `title` describes in a few words what it finds."""

    id: str
    severity: Severity
    needs: Needs
    title: str
    check: Any

    def finding(
        self,
        path: str,
        message: str,
        *evidence: tuple[str, str],
        fix: Fix | None = None,
        code: str = "",
    ) -> Finding:
        return Finding(self.id, self.severity, path, message, evidence, fix, code=code)


def distance(one: str, other: str, *, most: int = 2) -> int:
    """Return the number of edits, a transposition of neighbours counting as one; most + 1 if more."""
    return int(OSA.distance(one, other, score_cutoff=most))


def nearest(word: str, known: Mapping[str, int]) -> str | None:
    """Return the known word that was probably meant; of equally near ones the most frequent."""
    most = 2 if len(word) >= MOST_NAMES else 1
    near = [
        (steps, -count, other)
        for other, count in known.items()
        if (steps := distance(word, other)) <= most
    ]
    return min(near)[2] if near else None


def normalised(word: str) -> str:
    return word.lower().replace("_", "-").strip("-. ")


def digits(word: str) -> str:
    return "".join(one for one in word if one.isdigit())


def key_counts(fleet: Fleet) -> dict[str, int]:
    keys = sorted({key for cluster in fleet for key in cluster.labels})
    return {key: int(fleet.label(key).is_present.sum()) for key in keys}


def some(names: Iterable[str]) -> str:
    return names_and_more(names, MOST_NAMES)


def counted(number: int, word: str = "cluster") -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def set_at(*path: str | int, value: Any) -> Edit:
    """Return the edit of a policy that sets a field, or removes it with None."""

    def edit(plain: dict[str, Any]) -> None:
        put(plain, path, value)

    return edit


def put(plain: Any, path: Keys, value: Any) -> None:
    """Set what is at a path of plain data, or remove it with None."""
    *outer, last = path
    holder: Any = plain
    for key in outer:
        holder = holder.setdefault(key, {}) if isinstance(holder, dict) else holder[key]
    if value is not None:
        holder[last] = value
    elif isinstance(holder, list) or last in holder:
        del holder[last]  # type: ignore[arg-type]


def joined(
    findings: Iterable[Finding], rank: Callable[[str], tuple[int, str]]
) -> list[Finding]:
    """Return the findings with those of one cause below the first of them, as severe as the worst."""
    roots: list[tuple[Finding, set[tuple[str, str]]]] = []
    for one in sorted(findings, key=lambda finding: rank(finding.rule)):
        place = next(
            (
                at
                for at, (_, known) in enumerate(roots)
                if known.intersection(one.evidence)
            ),
            None,
        )
        if place is None:
            roots.append((one, set(one.evidence)))
        else:
            root, known = roots[place]
            known.update(one.evidence)
            roots[place] = (
                replace(root, caused=(*root.caused, one), fix=root.fix or one.fix),
                known,
            )
    return [worst_of(root) for root, _ in roots]


def worst_of(finding: Finding) -> Finding:
    """Return a finding as severe as the worst of its cause."""
    severities = {one.severity for one in flat([finding])}
    return replace(
        finding,
        severity=next(severity for severity in Severity if severity in severities),
    )


def flat(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings and those below them."""
    for finding in findings:
        yield finding
        yield from finding.caused
