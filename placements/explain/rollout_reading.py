"""Answers of a rollout read back from the facts that `rollout_document` wrote, for sentences about them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

from placements.rollout.answer import (
    Action,
    Answer,
    Block,
    Remove,
    StartUpdate,
    UnderWay,
    Verdict,
    Waiting,
    Why,
)
from placements.rollout.budget import Budgets, Ceiling, Floor, Slots
from placements.rollout.state import Phase

Facts: TypeAlias = Mapping[str, Any]
_SHORT = 8


def answer_of(facts: Facts, names: Mapping[str, str] | None = None) -> Answer:
    """Give the answer that these facts were written from; `names` says what people call its versions."""
    called = names or {}
    return Answer(
        Verdict(facts["verdict"]),
        tuple(_action(one) for one in facts["actions"]),
        _budgets(facts["budgets"]),
        tuple(_waiting(one, called) for one in facts["waiting"]),
        tuple(
            UnderWay(one["cluster"], Phase(one["phase"]), _moment(one["until"])) for one in facts["underWay"]
        ),
        _moment(facts["until"]),
        tuple(facts["unreachable"]),
        tuple(facts["mayStillHold"]),
    )


def version_name(version: str | None, names: Mapping[str, str]) -> str | None:
    """Say which version that is as people do, or by the beginning of its hash."""
    return None if version is None else names.get(version, version[:_SHORT])


def _action(facts: Facts) -> Action:
    if facts["what"] == "remove":
        return Remove(facts["cluster"], facts["attempt"])
    return StartUpdate(facts["cluster"], facts["version"], Why(facts["what"]), facts["attempt"])


def _budgets(facts: Facts) -> Budgets:
    additions, deletion = facts["additions"], facts.get("deletion")
    return Budgets(
        _floor(facts["updates"]),
        _floor(facts["removals"]),
        Ceiling(additions["number"], additions["limit"], additions["holding"], additions["added"]),
        Slots(deletion["limit"], deletion["running"], deletion["started"]) if deletion else None,
    )


def _floor(facts: Facts) -> Floor:
    return Floor(facts["number"], facts["limit"], facts["ready"], facts["atRisk"])


def _waiting(facts: Facts, names: Mapping[str, str]) -> Waiting:
    return Waiting(
        facts["cluster"],
        Block(facts["block"]),
        _action(facts["action"]) if facts["action"] else None,
        version_name(facts["running"], names),
        version_name(facts["wanted"], names),
        until=_moment(facts["until"]),
        forgettable_from=_moment(facts["forgettableFrom"]),
        since=_moment(facts.get("since")),
    )


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
