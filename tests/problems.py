"""What is wrong, as tests compare it."""

from datetime import datetime

from placements.engine.problems import ProblemFacts
from placements.services.problems.book import find_problems


def found(*kinds: str, now: datetime) -> list[ProblemFacts]:
    """Return the problems of the hub in scope, of these kinds or all."""
    return [one for one in find_problems(now=now) if not kinds or one.kind in kinds]


def sentences(*kinds: str, now: datetime) -> dict[str, str]:
    """Return the messages of the problems by the name of their object."""
    return {one.name: one.message for one in found(*kinds, now=now)}
