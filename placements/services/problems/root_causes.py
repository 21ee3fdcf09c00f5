"""The problems of a hub by root cause, clusters that are alike in one; their section, and their title.

The attention list, the inbox and the count in the navigation follow from these: one rule, one number.
"""

from collections.abc import (
    Mapping,
    Sequence,
)
from dataclasses import replace
from enum import StrEnum

from clusters.fleet import EligibilityKind
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import counted, names_and_more
from placements.engine.problems import (
    Cause,
    Noun,
    ProblemFacts,
    ProblemLevel,
    causes_of,
    headline,
)
from placements.engine.status import NEEDS_RUN
from placements.explain.vocabulary import ELIGIBILITY_WORDS
from placements.models import ProblemKind
from placements.services.problems import sources
from placements.services.problems.parts import NOT_COUNTED

GROUPED_FROM = 3
"""So many clusters with the same problem are one cause: what they have in common is to be found."""
CORDONED = "cordoned"
_NAMES = 3
_NOT_READY = "not-ready"
_GROUPS: Mapping[str, tuple[str, str, str]] = {
    sources.LEAVING: ("leaving", "Being removed from the fleet", "state=leaving"),
    sources.LATE: (
        "with late heartbeat",
        "Not answering; not ready after 5m without a heartbeat",
        "state=heartbeat-late",
    ),
    sources.NOT_OBSERVED: (
        "not observed",
        "The statuses are those of the last observation",
        "state=not-observed",
    ),
    sources.UNHEALTHY: (
        "unhealthy",
        "By own report; not selected after 5m of it",
        "state=unhealthy",
    ),
    # Some are joining: as not ready they would contradict the figures.
    EligibilityKind.NO_AGENT: ("never reported", "Agent offline", "verdict=noAgent"),
}
"""State, sentence and filter of the list of clusters that are alike."""


class AttentionSection(StrEnum):
    """What a person does about a cause: approve or start it, repair, or consider."""

    APPROVE = "approve"
    BROKEN = "broken"
    ADVICE = "advice"


_TO_APPROVE = (ProblemKind.APPROVAL_PENDING, ProblemKind.REMOVAL_WAITS)
_NEUTRAL = (ProblemLevel.PROGRESS, ProblemLevel.OUTDATED, ProblemLevel.SUSPENDED)


def section_of(cause: Cause) -> AttentionSection:
    """Return the section of a cause; what is no problem yet, or was asked for, is advice."""
    if cause.kind in _TO_APPROVE or cause.reason == NEEDS_RUN:
        return AttentionSection.APPROVE
    is_advice = cause.kind in NOT_COUNTED or cause.level in _NEUTRAL
    return AttentionSection.ADVICE if is_advice else AttentionSection.BROKEN


def root_causes(problems: Sequence[ProblemFacts]) -> list[Cause]:
    """Return each root cause once, with what follows from it, the worst first."""
    return causes_of(_by_reason(_without_cordoned(problems)))


def title_of(cause: Cause, key: str = "") -> tuple[str, str]:
    """Return the title of a cause and the sentences below it.

    Several clusters are named by the value of the label `key`, if they have it in common.
    """
    if cause.kind == ProblemKind.APPROVAL_PENDING:
        _, stage, _ = cause.key.rsplit("/", 2)
        return f"{cause.name}: approve stage {stage}", cause.message
    if cause.key.startswith(_GROUP):
        common = cause.labels.get(key, "")
        return f"{common}: {cause.name}" if common else cause.name, cause.message
    first, rest = headline(cause.message)
    return f"{cause.name}: {first}", rest


_GROUP = "clusters/"


def _by_reason(problems: Sequence[ProblemFacts]) -> list[ProblemFacts]:
    """Return the problems with one for all clusters in a state that several are in."""
    states = (ProblemKind.CLUSTER_NOT_READY, ProblemKind.CLUSTER_LEAVING)
    groups = grouped(
        (problem.reason if problem.reason in _GROUPS else _NOT_READY, problem)
        for problem in problems
        if problem.kind in states and problem.reason != sources.NO_RESPONSE
    )
    large = {
        state: several
        for state, several in groups.items()
        if len(several) >= GROUPED_FROM
    }
    keys = {
        facts.key: f"{_GROUP}{state}"
        for state, several in large.items()
        for facts in several
    }
    found = [_group_of(state, several) for state, several in large.items()]
    for problem in problems:
        if problem.key not in keys:
            causes = tuple(dict.fromkeys(keys.get(key, key) for key in problem.causes))
            found.append(replace(problem, causes=causes))
    return found


def _group_of(state: str, problems: Sequence[ProblemFacts]) -> ProblemFacts:
    words, query = "not ready", "state=not-eligible&order=-verdict_since"
    common = set.intersection(*(set(problem.labels.items()) for problem in problems))
    if state in _GROUPS:
        words, why, query = _GROUPS[state]
        message = (
            f"{why}: {names_and_more([problem.name for problem in problems], _NAMES)}"
        )
    else:
        names = grouped(
            (ELIGIBILITY_WORDS[EligibilityKind(problem.reason)], problem.name)
            for problem in problems
        )
        message = " · ".join(
            f"{why}: {names_and_more(several, _NAMES)}"
            for why, several in names.items()
        )
    return replace(
        problems[0],
        key=f"{_GROUP}{state}",
        name=f"{counted(len(problems), 'cluster')} {words}",
        message=f"{message}.",
        path=f"/clusters/?{query}",
        since=min(
            (problem.since for problem in problems if problem.since), default=None
        ),
        causes=(),
        labels=dict(common),
    )


def _without_cordoned(problems: Sequence[ProblemFacts]) -> list[ProblemFacts]:
    """Return the problems with one for all placements that are outdated because clusters are cordoned."""
    outdated = [
        problem
        for problem in problems
        if problem.kind == ProblemKind.PLACEMENT_OUTDATED
        and problem.reason == CORDONED
        and not problem.causes
    ]
    if not outdated:
        return list(problems)
    key, placements = f"{_GROUP}{CORDONED}", counted(len(outdated), "placement")
    cause = replace(
        outdated[0],
        key=key,
        noun=Noun.CLUSTER,
        name="Cordoned clusters",
        message=f"Not selected again by {placements} if rescheduled.",
        path="/clusters/?state=cordoned",
        placement="",
        labels={},
    )
    others = [
        replace(problem, causes=(key,)) if problem in outdated else problem
        for problem in problems
    ]
    return [cause, *others]
