"""What few moves reach, in sentences and as a table."""

from collections.abc import Sequence

from fleetui.apimachinery.words import counted, first_names
from placements.engine.exact.moves import MovePlan, NoPlanReason
from placements.explain.vocabulary import verb

NO_PLAN = {
    NoPlanReason.TYPE: "Only placements of the type PickN can be rescheduled with few moves.",
    NoPlanReason.SEMANTICS: "Placements with these scheduling rules cannot be rescheduled with few moves.",
    NoPlanReason.OBSOLETE: "The policy was changed; its scheduling cycle reschedules the placement.",
    NoPlanReason.SCALES_DOWN: (
        "More clusters are selected than requested; the next scheduling cycle removes some."
    ),
    NoPlanReason.TOO_LARGE: "There are too many classes of clusters or constraints for a plan.",
}


NO_BETTER_SET = (
    "No better set of clusters exists under the rules today. What can help: "
    "one more ready cluster in the emptiest domain, or a larger max skew."
)


def balance_sentence(plan: MovePlan) -> str:
    today = plan.current
    faults = (
        (
            today.placed < plan.wanted,
            f"{today.placed:,} of {plan.wanted:,} clusters selected",
        ),
        (
            today.hard_excess,
            f"hard spread limits exceeded by {today.hard_excess:,}",
        ),
        (today.excess, f"soft spread limits exceeded by {today.excess:,}"),
        (today.stale, counted(today.stale, "outdated placement")),
    )
    text = ", ".join(words for applies, words in faults if applies)
    return (
        f"{text[0].upper()}{text[1:]}."
        if text
        else "No limit is exceeded and no placement is outdated."
    )


def repair_sentence(plan: MovePlan) -> str:
    chosen, today = plan.chosen, plan.current
    if not plan.leaves and not plan.joins:
        if plan.curve[-1].limit > chosen.limit:
            return "No set that so few moves reach is better."
        if today.hard_excess:
            return NO_BETTER_SET
        is_balanced = not (today.excess or today.stale or today.placed < plan.wanted)
        return (
            "No moves are needed."
            if is_balanced
            else "No other set within the hard limits is better."
        )
    moves = counted(chosen.moves, "move")
    joins = chosen.placed - today.placed
    what = f"{moves} and {counted(joins, 'new cluster')}" if joins else moves
    columns = (("soft excess", "excess"), ("skew", "skew"), ("affinity", "affinity"))
    numbers = [
        (words, getattr(chosen, name), getattr(today, name)) for words, name in columns
    ]
    better = ", ".join(
        f"{words} {then:,} (now {now:,})" for words, then, now in numbers if then != now
    )
    sentences = (
        (
            today.hard_excess and not chosen.hard_excess,
            f"{what} {verb(chosen.moves + joins, 'repairs')} all hard limits.",
        ),
        (
            chosen.hard_excess,
            f"With {what}, hard limits are exceeded by {chosen.hard_excess:,} (now {today.hard_excess:,}).",
        ),
        (
            joins,
            f"With {what}, {chosen.placed:,} of {plan.wanted:,} clusters are selected.",
        ),
        (
            today.stale > chosen.stale,
            f"With {what}, {counted(chosen.stale, 'outdated placement')} (now {today.stale:,}).",
        ),
        (True, f"With {what}, {better}."),
    )
    return next(sentence for applies, sentence in sentences if applies)


def hub_sentence(plan: MovePlan, difference: tuple[int, Sequence[str]] | None) -> str:
    """Return whether a live hub, which decides itself, would follow a plan (`hub_difference`)."""
    if difference is None:
        return "The hub follows these moves: evict the clusters that leave in order, and it selects the others."
    number, names = difference
    would = f"select {first_names(names)}" if names else "select no cluster"
    leaving = plan.leaves[number - 1]
    if number == 1:
        return f"The hub does not follow these moves: after the eviction from {leaving} it would {would}."
    followed = counted(number - 1, "eviction")
    return f"The hub follows the first {followed}. After the eviction from {leaving} it would {would}."
