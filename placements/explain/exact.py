"""The result of an exact search in sentences: what is possible, what conflicts, what would help."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from fleetui.apimachinery.words import counted, joined
from placements.engine.exact.conflict import FILTER_WORDS, Correction, ShoppingItem
from placements.engine.exact.record import (
    ExactRecord,
    ExactVerdict,
    OpenReason,
    PickOrder,
)
from placements.manifests.policy import PlacementPolicy

_MOST_ITEMS = 5
_COLUMN_WORDS = {
    "excess": "excess of soft limits",
    "skew": "skew",
    "affinity": "affinity",
    "wasHere": "selected before",
}
_BEST = "the scheduler found the best set"
_DROPPED = {"eligibility": "all clusters ready"}
STAGE_WORDS = {
    "picks": "Selected in this cycle",
    "skew": "Skew, summed",
    "affinity": "Affinity, summed",
}
OPEN_WORDS = {
    OpenReason.SEMANTICS: "exact search does not support these scheduling rules",
    OpenReason.START_OVER_LIMIT: "the skew was above the limit before the first step",
    OpenReason.NOTHING_TO_PICK: "this cycle selects no clusters",
    OpenReason.TOO_LARGE: "there are too many classes of clusters or constraints",
    OpenReason.TIME_LIMIT: "the time limit was reached",
    OpenReason.NODE_LIMIT: "the search limit was reached",
    OpenReason.SOLVER_ENDED: "the solver ended",
    OpenReason.CHECK_FAILED: "the set that was found did not pass the check",
}


def exact_sentences(record: ExactRecord, policy: PlacementPolicy) -> Iterator[str]:
    """Yield what an exact search found, most important first."""
    number = f"{record.wanted:,}"
    if record.is_possible:
        if record.exact and record.greedy and record.exact.picks == record.greedy.picks:
            greedy, exact = record.greedy.to_plain(), record.exact.to_plain()
            better = [
                f"{words} {exact[name]:,} instead of {greedy[name]:,}"
                for name, words in _COLUMN_WORDS.items()
                if exact[name] != greedy[name]
            ]
            yield f"a better set exists: {', '.join(better)}" if better else _BEST
            return
        yield f"{number} of {number} are possible without any change"
        if record.order is PickOrder.IMPOSSIBLE:
            yield "a valid set exists, but no order of single selections reaches it"
    elif record.verdict is ExactVerdict.IMPOSSIBLE:
        most = (
            f"{record.low:,}"
            if record.low == record.high
            else f"{record.low:,} to {record.high:,}"
        )
        if record.most_with_moves:
            yield f"{record.most_with_moves:,} of {number} are possible if selected clusters may leave"
        stay = " while they stay" if record.most_with_moves else ""
        yield f"at most {most} of {number} are possible{stay}"
        if record.exact and not record.missed:
            yield _BEST
        yield from conflict_sentences(record, policy)
        if record.shopping:
            yield shopping_sentence(record.shopping)
    elif record.reason in (OpenReason.TIME_LIMIT, OpenReason.NODE_LIMIT):
        yield (
            f"between {record.low:,} and {record.high:,} of {number} are possible"
            f": {OPEN_WORDS[record.reason]}"
        )
    elif record.reason is not None:
        yield f"not determined: {OPEN_WORDS[record.reason]}"


def conflict_sentences(record: ExactRecord, policy: PlacementPolicy) -> Iterator[str]:
    if record.conflict:
        conflicts = [
            joined([element.words(policy) for element in elements], "with")
            for elements in record.conflict[:_MOST_ITEMS]
        ]
        yield f"conflict: {'; '.join(conflicts)}"
    if record.corrections:
        yield f"smallest corrections: {'; '.join(map(_correction, record.corrections[:_MOST_ITEMS]))}"


def shopping_sentence(items: tuple[ShoppingItem, ...]) -> str:
    places = [item.words for item in items[:_MOST_ITEMS]]
    more = (
        [f"{len(items) - _MOST_ITEMS:,} more places"]
        if len(items) > _MOST_ITEMS
        else []
    )
    added = counted(sum(item.count for item in items), "more cluster")
    return f"possible with {added}: {'; '.join(places + more)}"


def _correction(correction: Correction) -> str:
    changes = [
        _DROPPED.get(
            element.name, f"without {FILTER_WORDS.get(element.name, element.name)}"
        )
        if to is None
        else f"{element.name} maxSkew {to}"
        for element, to in correction.changes
    ]
    note = (
        "" if correction.greedy_reaches else " (the scheduler would still stop short)"
    )
    return joined(changes) + note


@dataclass(frozen=True, slots=True)
class ComparedNumber:
    """One number of the greedy and of the exact set, with the largest of both for a bar."""

    name: str
    greedy: int
    exact: int
    most: int


def compared_numbers(record: ExactRecord) -> list[ComparedNumber]:
    if record.greedy is None or record.exact is None:
        return []
    greedy, exact = record.greedy.to_plain(), record.exact.to_plain()
    return [
        ComparedNumber(
            words, greedy[name], exact[name], max(greedy[name], exact[name], 1)
        )
        for name, words in STAGE_WORDS.items()
    ]


def exact_text(
    record: ExactRecord, policy: PlacementPolicy, *, parts: Container[str]
) -> str:
    """Return the result for a terminal; `parts` are `exact`, `conflict` and `shopping`."""
    lines: list[str] = []
    if "exact" in parts:
        lines += exact_sentences(record, policy)
        if record.missed:
            lines.append(f"set: {joined(record.picks)}")
        if record.sequence and record.missed:
            lines.append(f"one order: {', '.join(record.sequence)}")
        lines += [
            f"{number.name}: {number.greedy:,} → {number.exact:,}"
            for number in compared_numbers(record)
        ]
    elif "conflict" in parts:
        lines += conflict_sentences(record, policy)
    if "shopping" in parts and "exact" not in parts and record.shopping:
        lines.append(shopping_sentence(record.shopping))
    return "\n".join(["EXACT SEARCH", *(lines or ["no conflict"])]) + "\n"
