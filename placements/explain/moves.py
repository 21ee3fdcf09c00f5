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


def balance_sentence(plan: MovePlan) -> str:
    today = plan.current
    parts = [
        f"{today.placed:,} of {plan.wanted:,} clusters selected"
        if today.placed < plan.wanted
        else "",
        f"hard spread limits exceeded by {today.hard_excess:,}"
        if today.hard_excess
        else "",
        f"soft spread limits exceeded by {today.excess:,}" if today.excess else "",
        counted(today.stale, "outdated placement") if today.stale else "",
    ]
    text = ", ".join(part for part in parts if part)
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
        is_balanced = not (
            today.hard_excess
            or today.excess
            or today.stale
            or today.placed < plan.wanted
        )
        return (
            "No moves are needed."
            if is_balanced
            else "No other set within the hard limits is better."
        )
    moves = counted(chosen.moves, "move")
    joins = chosen.placed - today.placed
    what = f"{moves} and {counted(joins, 'new cluster')}" if joins else moves
    if today.hard_excess and not chosen.hard_excess:
        many = chosen.moves + joins
        return f"{what} {verb(many, 'repairs')} all hard limits."
    if chosen.hard_excess:
        return f"With {what}, hard limits are exceeded by {chosen.hard_excess:,} (now {today.hard_excess:,})."
    if joins:
        return (
            f"With {what}, {chosen.placed:,} of {plan.wanted:,} clusters are selected."
        )
    if today.stale > chosen.stale:
        return f"With {what}, {counted(chosen.stale, 'outdated placement')} (now {today.stale:,})."
    columns = (("soft excess", "excess"), ("skew", "skew"), ("affinity", "affinity"))
    numbers = [
        (words, getattr(chosen, name), getattr(today, name)) for words, name in columns
    ]
    better = [
        f"{words} {then:,} (now {now:,})" for words, then, now in numbers if then != now
    ]
    return f"With {what}, {', '.join(better)}."


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
