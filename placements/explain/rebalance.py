"""Rebalance plans in sentences, as documents and as a chart."""

from collections.abc import Iterator, Sequence
from typing import Any

from fleetui.apimachinery.words import counted, first_names
from placements.engine.exact.rebalance import MovePlan, NoPlanReason, RebalanceStep
from placements.explain.vocabulary import verb

_STEPS_SHOWN = 200

NO_PLAN = {
    NoPlanReason.TYPE: "Only placements of the type PickN can be rebalanced.",
    NoPlanReason.SEMANTICS: "Placements with these scheduling rules cannot be rebalanced.",
    NoPlanReason.OBSOLETE: "The policy was changed; its scheduling cycle reschedules the placement.",
    NoPlanReason.SCALES_DOWN: (
        "More clusters are selected than requested; the next scheduling cycle removes some."
    ),
    NoPlanReason.TOO_LARGE: "There are too many classes of clusters or constraints for a plan.",
}


def balance_sentence(plan: MovePlan) -> str:
    today = plan.current
    parts = [
        f"{today.placed:,} of {plan.wanted:,} clusters selected" if today.placed < plan.wanted else "",
        f"hard spread limits exceeded by {today.hard_excess:,}" if today.hard_excess else "",
        f"soft spread limits exceeded by {today.excess:,}" if today.excess else "",
        counted(today.stale, "outdated placement") if today.stale else "",
    ]
    text = ", ".join(part for part in parts if part)
    return f"{text[0].upper()}{text[1:]}." if text else "No limit is exceeded and no placement is outdated."


def repair_sentence(plan: MovePlan) -> str:
    chosen, today = plan.chosen, plan.current
    if not plan.steps:
        if plan.curve[-1].limit > chosen.limit:
            return "No set that so few moves reach is better."
        is_balanced = not (today.hard_excess or today.excess or today.stale or today.placed < plan.wanted)
        return "No moves are needed." if is_balanced else "No other set within the hard limits is better."
    moves = counted(chosen.moves, "move")
    joins = chosen.placed - today.placed
    what = f"{moves} and {counted(joins, 'new cluster')}" if joins else moves
    if today.hard_excess and not chosen.hard_excess:
        many = chosen.moves + joins
        return f"{what} {verb(many, 'repairs')} all hard limits."
    if chosen.hard_excess:
        return f"With {what}, hard limits are exceeded by {chosen.hard_excess:,} (now {today.hard_excess:,})."
    if joins:
        return f"With {what}, {chosen.placed:,} of {plan.wanted:,} clusters are selected."
    if today.stale > chosen.stale:
        return f"With {what}, {counted(chosen.stale, 'outdated placement')} (now {today.stale:,})."
    columns = (("soft excess", "excess"), ("skew", "skew"), ("affinity", "affinity"))
    numbers = [(words, getattr(chosen, name), getattr(today, name)) for words, name in columns]
    better = [f"{words} {then:,} (now {now:,})" for words, then, now in numbers if then != now]
    return f"With {what}, {', '.join(better)}."


def hub_sentence(difference: tuple[int, Sequence[str]] | None) -> str:
    """Return whether a live hub, which decides itself, would follow a plan (`hub_difference`)."""
    if difference is None:
        return "The hub follows this plan: evict the clusters that leave in order, and it selects the others."
    number, names = difference
    would = f"select {first_names(names)}" if names else "select no cluster"
    if number == 1:
        return f"The hub does not follow this plan: after the first batch of evictions it would {would}."
    before = f"batches 1 to {number - 1:,}" if number > 2 else "batch 1"
    return f"The hub follows {before} of this plan. After the evictions of batch {number:,} it would {would}."


def plan_lines(plan: MovePlan, batches: Sequence[Sequence[RebalanceStep]], *, hub: str = "") -> Iterator[str]:
    """Yield a plan as the command prints it: what is exceeded, the curve, and the steps."""
    yield balance_sentence(plan)
    yield repair_sentence(plan)
    if hub:
        yield hub
    yield ""
    yield f"{'MOVES':>6} {'SELECTED':>9} {'HARD':>6} {'SOFT':>6} {'OUTDATED':>9} {'SKEW':>6} {'AFFINITY':>9}"
    for one in plan.curve:
        mark = " *" if one.limit == plan.chosen.limit else ""
        row = f"{one.limit:>6} {one.placed:>9} {one.hard_excess:>6} {one.excess:>6}"
        yield f"{row} {one.stale:>9} {one.skew:>6} {one.affinity:>9}{mark}"
    if plan.steps:
        yield ""
    steps = [(number, step) for number, batch in enumerate(batches, start=1) for step in batch]
    for number, step in steps[:_STEPS_SHOWN]:
        warning = "  breaks a limit" if step.breaks_limit else ""
        words = f"leave {step.leave}" if step.leave else f"join {step.join}"
        yield f"batch {number}: {words} (skew {step.skew}, excess {step.hard_excess}){warning}"
    if len(steps) > _STEPS_SHOWN:
        yield f"… {len(steps) - _STEPS_SHOWN:,} more steps"


def plan_document(
    plan: MovePlan, batches: Sequence[Sequence[RebalanceStep]], *, refusal: str, hub: str
) -> dict[str, Any]:
    """Return a plan as REST and the command write it."""
    document = plan.to_plain()
    document.pop("steps")
    return {
        **document,
        "batches": [[step.to_plain() for step in batch] for batch in batches],
        "refusal": refusal,
        "hub": hub,
    }
