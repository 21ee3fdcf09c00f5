"""Sentences about what-ifs: what was supposed, what would become of placements, why two answers differ."""

from collections.abc import Iterable, Mapping, Sequence

from fleetui.apimachinery.words import counted, first_names, joined
from placements.engine.advice.diagnosis import pinned_groups
from placements.engine.balance import ExceededLimit, limit_words
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.explain.vocabulary import headline, verb
from placements.manifests.policy import PlacementType

_NAMES_SHOWN = 5
VARIANT_WORDS = {"leave": "Removed from the fleet", "cordon": "Drained (still members)"}


def choice_words(names: Sequence[str], labels: Sequence[str], total: int) -> str:
    """Return which clusters were chosen: "3 clusters, region=east", "bravelion and smartfish"."""
    by_label = ", ".join(
        f"no {label[1:]}" if label.startswith("!") else label.replace(":", "=", 1) for label in labels
    )
    if not labels:
        return first_names(names, _NAMES_SHOWN)
    also = f" and {joined(list(names[:_NAMES_SHOWN]))}" if names else ""
    return f"{counted(total, 'cluster')}, {by_label}{also}"


def stuck_words(decision: Decision) -> str:
    if decision.not_found:
        return f"named, and not in the fleet: {joined(decision.not_found[:_NAMES_SHOWN])}"
    if decision.is_failed:
        return headline(decision)
    by_count: dict[tuple[int, bool], list[str]] = {}
    for one in pinned_groups(decision):
        by_count.setdefault((one.count, one.has_candidates), []).append(f"{one.topology_key}={one.group}")
    sentences = []
    for (count, has_candidates), groups in by_count.items():
        cause = "no more candidates" if has_candidates else "no candidates"
        stays = f"{joined(groups[:_NAMES_SHOWN])} {verb(len(groups), 'stays')}"
        sentences.append(f"{stays} at {count:,} ({cause})")
    return "; ".join(sentences) or "no other cluster passes its filters"


def balance_sentence(exceeded: Iterable[ExceededLimit]) -> str:
    """Return which hard limits what is placed exceeds, with the counts; empty without one."""
    parts = [limit_words(limit) for limit in exceeded]
    return f"Out of balance: {'; '.join(parts)}." if parts else ""


def difference_note(cycle: Cycle, emptied: Sequence[str]) -> str:
    """Return why it matters whether the clusters leave or are only cordoned."""
    if cycle.policy.placement_type is PlacementType.PICK_FIXED:
        return "the policy names its clusters: members keep the placement, removed clusters are missing"
    if emptied:
        which = joined(list(emptied[:_NAMES_SHOWN]))
        stay = "stays a domain" if len(emptied) == 1 else "stay domains"
        return f"domains are counted over all member clusters, so a cordoned {which} {stay} with 0"
    if cycle.policy.tolerations:
        return "the policy tolerates the cordon taint, so only removing the cluster has an effect"
    return "a cordoned cluster still counts in its domain, a removed one does not"


def impacts_sentence(counts: Mapping[str, int]) -> str:
    """Return the result of a scenario: "1 unschedulable, 3 rescheduled, 1 unchanged"."""
    parts = [f"{counts[impact]:,} {words}" for impact, words in _IMPACTS.items() if counts.get(impact)]
    return ", ".join(parts) or "No placements to analyze"


_IMPACTS = {
    "stuck": "unschedulable",
    "shrinks": "scaled down",
    "moves": "rescheduled",
    "cannot": "not evictable",
    "stays": "unchanged",
}
