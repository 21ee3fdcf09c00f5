"""What is wrong, as tests compare it."""

from datetime import datetime

from placements.engine.problems import ProblemFacts
from placements.services.health import all_healths
from placements.services.problems.book import problems_with


def found(*kinds: str, now: datetime) -> list[ProblemFacts]:
    """Return the problems of the hub in scope, of these kinds or all."""
    problems = problems_with(list(all_healths(now=now)), now=now)
    return [problem for problem in problems if not kinds or problem.kind in kinds]


def sentences(*kinds: str, now: datetime) -> dict[str, str]:
    """Return the messages of the problems by the name of their object."""
    return {facts.name: facts.message for facts in found(*kinds, now=now)}
