"""What a staged run does next, as plain data: to be stored, for a program, and back for sentences."""

from typing import Any

from pydantic import TypeAdapter

from placements.rollout.staged_facts import Answer

_ANSWER = TypeAdapter(Answer)


def answer_facts(answer: Answer) -> dict[str, Any]:
    """Give an answer as plain data, without the run that stands beside it."""
    plain: dict[str, Any] = _ANSWER.dump_python(answer, mode="json", exclude={"run"})
    return plain


def answer_of(plan: Any, facts: Any) -> Answer:
    """Give back a stored answer with its run."""
    return _ANSWER.validate_python({**facts, "run": plan})
