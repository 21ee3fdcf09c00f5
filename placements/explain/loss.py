"""Sentences about the loss of clusters, and tables and documents about resilience reports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.fleet import Fleet
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import counted, first_names, joined
from placements.engine.advice.diagnosis import pinned_groups
from placements.engine.disruption import KeptReason
from placements.engine.limits import balance_sentence
from placements.engine.loss import (
    AND,
    CLUSTER,
    PlacementImpact,
    PlacementLoss,
    pair_key,
)
from placements.engine.scheduling.decision import Decision
from placements.explain.decision_tables import csv_text
from placements.explain.staged_updates import STAYS_SENTENCES
from placements.explain.vocabulary import NAMES_SHOWN, headline, verb
from placements.manifests.policy import PlacementType

VARIANT_NAMES = {
    "down": "Down (still members)",
    "cordon": "Drained (still members)",
    "leave": "Removed from the fleet",
}
# The level and the words of each impact.
IMPACT_BADGES = {
    PlacementImpact.STUCK: ("attention", "Not fulfilled"),
    PlacementImpact.BLOCKED: ("attention", "Blocked"),
    PlacementImpact.DOWN: ("attention", "Clusters down"),
    PlacementImpact.SHRINKS: ("attention", "Scaled down"),
    PlacementImpact.MOVES: ("progress", "Rescheduled"),
    PlacementImpact.CANNOT: ("pending", "Not evictable"),
    PlacementImpact.LEAVING: ("progress", "Removing"),
    PlacementImpact.STAYS: ("healthy", "Unchanged"),
}
METRICS = ("unfulfilled", "empty", "lost")
_CSV = (
    "level",
    "value",
    "variant",
    "clusters",
    "placements",
    "lost",
    "moved",
    "unfulfilled",
    "empty",
)


def choice_words(names: Sequence[str], labels: Sequence[str], total: int) -> str:
    """Return which clusters were chosen: "3 clusters, region=east", "bravelion and smartfish"."""
    by_label = ", ".join(
        f"no {label[1:]}" if label.startswith("!") else label.replace(":", "=", 1)
        for label in labels
    )
    if not labels:
        return first_names(names, NAMES_SHOWN)
    also = f" and {joined(list(names[:NAMES_SHOWN]))}" if names else ""
    return f"{counted(total, 'cluster')}, {by_label}{also}"


def stuck_words(decision: Decision) -> str:
    if decision.not_found:
        return (
            f"named, and not in the fleet: {joined(decision.not_found[:NAMES_SHOWN])}"
        )
    if decision.is_failed:
        return headline(decision)
    by_count = grouped(
        ((group.count, group.has_candidates), f"{group.topology_key}={group.group}")
        for group in pinned_groups(decision)
    )
    sentences = []
    for (count, has_candidates), groups in by_count.items():
        stays = f"{joined(groups[:NAMES_SHOWN])} {verb(len(groups), 'stays')}"
        sentences.append(
            f"{stays} at {count:,} (no {'more ' * has_candidates}candidates)"
        )
    return "; ".join(sentences) or "no other cluster passes its filters"


def impact_badges(row: PlacementLoss) -> list[tuple[str, str]]:
    """Return what becomes of a placement, as totals and filters count it, then what is wrong with it."""
    is_moved = row.impact is PlacementImpact.MOVES
    is_open = bool(row.decisions) and row.impact is not PlacementImpact.STUCK
    unfulfilled = "Not fulfilled" if row.gets_worse else "Not fulfilled, as before"
    is_first = is_moved and not row.placed_before
    badges = (
        (is_first, ("progress", "Scheduled")),
        (not is_first, IMPACT_BADGES[row.impact]),
        (
            is_moved and row.is_fulfilled and not row.leaves,
            ("healthy", "Fulfilled"),
        ),
        (is_open and not row.is_fulfilled, ("attention", unfulfilled)),
        (row.exceeded_limits, ("attention", "Out of balance")),
        (row.is_empty, ("failed", "No clusters left")),
    )
    return [badge for applies, badge in badges if applies]


def loss_message(row: PlacementLoss) -> str:
    """Return what becomes of a placement in words: its replacements or why there are none, and its limits."""
    is_all = row.cycle.policy.placement_type is PlacementType.PICK_ALL
    message = ""
    match row.impact:
        case PlacementImpact.CANNOT:
            message = STAYS_SENTENCES[KeptReason(row.stays or "")]
        case PlacementImpact.STUCK if row.decision is not None:
            gone = max(len(row.leaves), len(row.joins))
            replaced = f"{len(row.joins):,} of {gone:,} replaced"
            words = replaced if row.joins else "No replacement"
            message = f"{words}: {stuck_words(row.decision)}."
        case PlacementImpact.MOVES if row.leaves:
            message = f"Replacement: {first_names(row.joins, NAMES_SHOWN)}."
        case PlacementImpact.SHRINKS:
            message = f"No replacement needed{' (PickAll)' * is_all}."
        case PlacementImpact.DOWN:
            down = verb(len(row.inside), "does")
            message = f"{counted(len(row.inside), 'cluster')} {down} not work; nothing moves yet."
    if row.objects_out_of_service:
        message = f"{message} {counted(row.objects, 'object')} out of service.".lstrip()
    balance = balance_sentence(row.exceeded_limits) if row.is_touched else ""
    return f"{message} {balance}".strip()


def difference_note(left: PlacementLoss, drained: PlacementLoss) -> str:
    """Return why it matters whether the clusters leave or are only drained; empty if it does not."""
    if (left.impact, left.placed_after) == (drained.impact, drained.placed_after):
        return ""
    policy = drained.cycle.policy
    if policy.placement_type is PlacementType.PICK_FIXED:
        return "the policy names its clusters: members keep the placement, removed clusters are missing"
    emptied = emptied_domains(
        left.cycle.fleet,
        drained.cycle.fleet,
        [constraint.topology_key for constraint in policy.topology_spread_constraints],
    )
    if emptied:
        which = joined(list(emptied[:NAMES_SHOWN]))
        stay = "stays a domain" if len(emptied) == 1 else "stay domains"
        return f"domains are counted over all member clusters, so a cordoned {which} {stay} with 0"
    if policy.tolerations:
        return "the policy tolerates the cordon taint, so only removing the cluster has an effect"
    return "a cordoned cluster still counts in its domain, a removed one does not"


def emptied_domains(after: Fleet, before: Fleet, keys: Iterable[str]) -> list[str]:
    """Return the domains of these keys, as `key=value`, that have no cluster any more."""
    domains = []
    for key in dict.fromkeys(keys):
        gone = set(before.label(key).values) - set(after.label(key).values)
        domains += [f"{key}={value}" for value in sorted(gone)]
    return domains


def impacts_sentence(counts: Mapping[PlacementImpact, int]) -> str:
    """Return the result of a loss: "1 not fulfilled, 3 rescheduled"."""
    parts = [
        f"{counts[impact]:,} {words}"
        for impact, words in _IMPACTS.items()
        if counts.get(impact)
    ]
    return ", ".join(parts) or "no placement is affected"


_IMPACTS = {
    PlacementImpact.STUCK: "not fulfilled",
    PlacementImpact.DOWN: "with clusters down",
    PlacementImpact.SHRINKS: "scaled down",
    PlacementImpact.MOVES: "rescheduled",
    PlacementImpact.CANNOT: "not evictable",
    PlacementImpact.STAYS: "unchanged",
}


@dataclass(frozen=True, slots=True)
class LevelWorst:
    """The worst loss of one level: how many placements are unfulfilled or without any cluster."""

    level: str
    unfulfilled: int
    empty: int
    lost: int
    value: str
    sentence: str

    @property
    def is_bad(self) -> bool:
        return bool(self.unfulfilled or self.empty)


def worst_by_level(totals: Mapping[str, Any], variant: str) -> list[LevelWorst]:
    levels = []
    for level, by_variant in totals.items():
        worst = by_variant.get(variant, {})
        counts = {name: worst.get(name, {}).get("count", 0) for name in METRICS}
        first = next((name for name in METRICS if counts[name]), "lost")
        value = worst.get(first, {}).get("value", "")
        sentence = _sentence(level, variant, counts, value)
        levels.append(LevelWorst(level, value=value, sentence=sentence, **counts))
    return levels


def _sentence(
    level: str,
    variant: str,
    counts: Mapping[str, int],
    value: str,
) -> str:
    name = f"2 domains of {pair_key(level)}" if pair_key(level) else level
    loss = "Loss of any single cluster" if level == CLUSTER else f"Loss of any {name}"
    metric, words, gone = ("unfulfilled", "unfulfilled", "not replaced")
    if variant == "down":
        metric, words, gone = ("empty", "without any working cluster", "lost")
    number = counts[metric]
    worst = f"if {loss_name(level, value)} {verb(1 + value.count(AND), 'is')} lost"
    empty, lost = counts["empty"], counts["lost"]
    sentences = (
        (number, f"up to {counted(number, 'placement')} {words}, {worst}."),
        (empty, f"up to {counted(empty, 'placement')} without any cluster, {worst}."),
        (
            lost,
            f"no placement {words}; up to {counted(lost, 'cluster')} {gone}, {worst}.",
        ),
        (True, "no placement is affected permanently."),
    )
    return f"{loss}: {next(words for applies, words in sentences if applies)}"


def loss_name(level: str, value: str) -> str:
    """Return a loss in words: "cluster bravelion", "region=east", "region=east and region=west"."""
    key = pair_key(level) or level
    domains = " and ".join(f"{key}={part}" for part in value.split(AND))
    return f"cluster {value}" if level == CLUSTER else domains


def what_if_query(level: str, value: str, variant: str) -> dict[str, str]:
    labels = " ".join(f"{pair_key(level) or level}:{part}" for part in value.split(AND))
    chosen = {"cluster": value} if level == CLUSTER else {"label": labels}
    return {**chosen, "variant": variant}


def losses_csv(rows: Iterable[Sequence[Any]]) -> str:
    return csv_text(_CSV, map(tuple, rows))
