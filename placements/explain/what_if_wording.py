"""Sentences about what-ifs: what was supposed, what would become of placements, why two answers differ."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placements.explain.staged_wording import STAYS_SENTENCES
from placements.explain.wording import counted, headline, joined, verb
from placements.rollout.disruption import WhyStays
from placements.scheduling.advice.traps import pinned_groups
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision
from placements.scheduling.policy import PlacementType

_NAMES_SHOWN = 5
VARIANT_WORDS = {
    "leave": "leave the fleet",
    "cordon": "are cordoned and evicted, still members",
}


def choice_words(names: Sequence[str], labels: Sequence[str], total: int) -> str:
    """Say which clusters were chosen: "3 clusters, region=east", "bravelion and smartfish"."""
    by_label = ", ".join(map(_label, labels))
    if not labels:
        more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
        shown = list(names[:_NAMES_SHOWN])
        return f"{', '.join(shown)}{more}" if more else joined(shown)
    also = f" and {joined(list(names[:_NAMES_SHOWN]))}" if names else ""
    return f"{counted(total, 'cluster')}, {by_label}{also}"


def _label(written: str) -> str:
    return f"no {written[1:]}" if written.startswith("!") else written.replace(":", "=", 1)


def stuck_words(decision: Decision) -> str:
    """Say why a placement finds no other cluster."""
    if decision.not_found:
        return f"named, and not in the fleet: {joined(decision.not_found[:_NAMES_SHOWN])}"
    if decision.is_failed:
        return headline(decision)
    by_count: dict[tuple[int, bool], list[str]] = {}
    for one in pinned_groups(decision):
        by_count.setdefault((one.count, one.has_candidates), []).append(f"{one.topology_key}={one.group}")
    told = [_pinned(groups, *key) for key, groups in by_count.items()]
    return "; ".join(told) or "no other cluster passes its filters"


def _pinned(groups: Sequence[str], count: int, has_candidates: bool) -> str:
    whose = "it" if len(groups) == 1 else "them"
    cause = (
        f"the clusters of {whose} are used up" if has_candidates else f"no cluster of {whose} can be picked"
    )
    return f"{joined(groups[:_NAMES_SHOWN])} {verb(len(groups), 'holds')} the minimum at {count:,}: {cause}"


def stays_words(why: Any) -> str:
    """Say why a placement is not moved by a drain."""
    return STAYS_SENTENCES[WhyStays(why)]


def difference_note(cycle: Cycle, emptied: Sequence[str]) -> str:
    """Say why it matters whether the clusters leave or are only cordoned."""
    if cycle.policy.placement_type is PlacementType.PICK_FIXED:
        return "it names its clusters: members keep it, and those that have left are missing"
    if emptied:
        which = joined(list(emptied[:_NAMES_SHOWN]))
        stay = "stays a group" if len(emptied) == 1 else "stay groups"
        return f"groups are counted over all member clusters, so a cordoned {which} {stay} with 0"
    if cycle.policy.tolerations:
        return "it tolerates the cordon, so that only leaving takes it away"
    return "a cordoned cluster still counts in its group, one that left does not"


def fates_sentence(counts: Mapping[str, int]) -> str:
    """Say how a scenario comes out: "1 stuck, 3 move, 1 stays as it is"."""
    told = [words(counts[fate]) for fate, words in _FATES.items() if counts.get(fate)]
    return ", ".join(told) or "there is no placement to ask"


_FATES: dict[str, Callable[[int], str]] = {
    "stuck": lambda count: f"{count:,} stuck",
    "shrinks": lambda count: f"{count:,} {verb(count, 'shrinks')}",
    "moves": lambda count: f"{count:,} {verb(count, 'moves')}",
    "cannot": lambda count: f"{count:,} cannot be moved",
    "stays": lambda count: f"{count:,} {'stays as it is' if count == 1 else 'stay as they are'}",
}
