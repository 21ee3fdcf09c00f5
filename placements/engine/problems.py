"""What is wrong with a hub, by root cause: problems in, causes with what follows from them out."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256

from fleetui.apimachinery.words import counted, first_names
from placements.engine.status import HealthLevel


class ProblemLevel(StrEnum):
    """How bad a problem is, the worst first; those of a status, and `outdated`."""

    FAILED = HealthLevel.FAILED
    ATTENTION = HealthLevel.ATTENTION
    UNKNOWN = HealthLevel.UNKNOWN
    PROGRESS = HealthLevel.PROGRESS
    OUTDATED = "outdated"
    SUSPENDED = HealthLevel.SUSPENDED


LEVELS = list(ProblemLevel)


class Noun(StrEnum):
    """The kind of the object that a problem is about, and so the page to open."""

    CLUSTER = "cluster"
    PLACEMENT = "placement"
    ROLLOUT = "rollout"
    STAGED_RUN = "staged-run"
    DECISION = "decision"
    DRIFT = "placement-drift"
    REMOVALS = "cluster-removals"
    CONNECTION = "cluster-connection"
    HUB = "hub"
    CHANNEL = "notifications"


NOUNS = {
    Noun.CLUSTER: "Cluster",
    Noun.PLACEMENT: "Placement",
    Noun.ROLLOUT: "Rollout",
    Noun.STAGED_RUN: "Staged run",
    Noun.DECISION: "Decision",
    Noun.DRIFT: "Placement",
    Noun.REMOVALS: "Cluster",
    Noun.CONNECTION: "Cluster",
    Noun.HUB: "Hub",
    Noun.CHANNEL: "Channel",
}
"""The word before the name of the object."""


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    """A problem of an object: `kind` is a `ProblemKind`, `message` is why, without the object.

    `reason` is what problems of one kind have in common, such as a heartbeat that is lost.
    `placement` is the placement that it is about; `clusters` are those that may be its cause, and `causes`
    the keys of the problems that it follows from: none of a root cause. `since` is None if it is not known.
    """

    kind: str
    key: str
    noun: Noun
    name: str
    level: ProblemLevel
    message: str
    path: str
    since: datetime | None = None
    reason: str = ""
    placement: str = ""
    clusters: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


MOST_CAUSES = 10
"""So many causes of one problem are kept; it follows from all of them."""


def with_causes(problems: Sequence[ProblemFacts]) -> list[ProblemFacts]:
    """Return the problems, each with the keys of those that it follows from.

    What waits only for clusters with a problem follows from these.
    """
    by_cluster = {
        problem.name: problem.key
        for problem in problems
        if problem.noun is Noun.CLUSTER
    }
    found = []
    for problem in problems:
        blamed = [by_cluster[name] for name in problem.clusters if name in by_cluster]
        is_explained = bool(blamed) and len(blamed) == len(problem.clusters)
        found.append(
            replace(problem, causes=tuple(blamed[:MOST_CAUSES]))
            if is_explained
            else problem
        )
    return found


@dataclass(frozen=True, slots=True)
class Effect:
    """What follows from a cause: a sentence or a name, and the page to open."""

    words: str
    path: str


_END_OF_HEADLINE = re.compile(r"(?<=\w): |; |\. ")


def headline(message: str) -> tuple[str, str]:
    """Return the first words of a message, to be put after a name, and the sentences after them."""
    first, *others = _END_OF_HEADLINE.split(message, maxsplit=1)
    rest = "".join(others)
    first = first.removesuffix(".")
    is_word = first[1:2].islower()
    return first[:1].lower() + first[1:] if is_word else first, rest[:1].upper() + rest[
        1:
    ]


@dataclass(frozen=True, slots=True)
class Cause:
    """An object that needs attention: why, since when, what follows from it, and the page to open.

    `summary` counts what follows. `mark` changes when the cause does; a time does not change it. `labels`
    are those of the object, of several clusters those that all of them have; `reason` as in `ProblemFacts`.
    """

    key: str
    level: str
    kind: str
    noun: str
    name: str
    message: str
    path: str
    since: datetime | None = None
    effects: tuple[Effect, ...] = ()
    summary: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    @property
    def mark(self) -> str:
        words = (
            self.level,
            self.message,
            self.summary,
            *(effect.words for effect in self.effects),
        )
        return sha256("\0".join(words).encode()).hexdigest()[:12]


_FOLLOWING = {
    Noun.ROLLOUT: ("rollout", " waiting"),
    Noun.STAGED_RUN: ("run", " waiting"),
    Noun.PLACEMENT: ("placement", " affected by this alone"),
}
_OUTDATED = ("placement", " outdated")
_ALSO_BY_OTHERS = ("placement", " affected by this and other causes")
_TITLES = {Noun.ROLLOUT: "Rollout ", Noun.STAGED_RUN: "Run "}
MOST_EFFECTS = 10


def causes_of(problems: Iterable[ProblemFacts]) -> list[Cause]:
    """Return each root cause once, with what follows from it, the worst first; one for each placement."""
    roots: dict[str, list[ProblemFacts]] = defaultdict(list)
    following: dict[str, list[ProblemFacts]] = defaultdict(list)
    for problem in problems:
        for key in problem.causes:
            following[key].append(problem)
        if not problem.causes:
            of_placement = problem.noun in (
                Noun.PLACEMENT,
                Noun.ROLLOUT,
                Noun.STAGED_RUN,
            )
            is_merged = (
                of_placement
                and problem.placement
                and problem.kind != "approval-pending"
            )
            roots[
                f"placement/{problem.placement}" if is_merged else problem.key
            ].append(problem)
    causes = [_cause(key, several, following) for key, several in roots.items()]
    return sorted(
        causes,
        key=lambda one: (
            LEVELS.index(ProblemLevel(one.level)),
            one.noun != Noun.CLUSTER,
            one.name,
        ),
    )


def _cause(
    key: str, problems: list[ProblemFacts], following: Mapping[str, list[ProblemFacts]]
) -> Cause:
    first, *others = sorted(problems, key=lambda one: LEVELS.index(one.level))
    effects = [Effect(other.message, other.path) for other in others]
    after = [facts for problem in problems for facts in following[problem.key]]
    after.sort(key=lambda one: list(_FOLLOWING).index(one.noun))
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in after:
        words = (
            _OUTDATED if one.level is ProblemLevel.OUTDATED else _FOLLOWING[one.noun]
        )
        if words == _FOLLOWING[Noun.PLACEMENT] and len(one.causes) > 1:
            words = _ALSO_BY_OTHERS
        groups[words].append(one.name)
        effects.append(Effect(f"{_TITLES.get(one.noun, '')}{one.name}", one.path))
    parts = [
        f"{counted(len(names), noun)}{state} ({first_names(names)})"
        for (noun, state), names in groups.items()
    ]
    return Cause(
        key,
        first.level,
        first.kind,
        first.noun,
        first.name if key == first.key else first.placement,
        first.message,
        first.path,
        first.since,
        tuple(effects[:MOST_EFFECTS]),
        " · ".join(parts),
        first.labels,
        first.reason,
    )
