"""What clusters answered to a dry run: an outcome for each, and sentences for all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from clusters.drivers.registry import SIMULATED
from fleetui.apimachinery.words import counted, names_and_more
from placements.explain.cluster_objects import Difference, DifferenceType

MOST_NAMES = 10


class DryRunOutcome(StrEnum):
    """The answer of one cluster, the worst first."""

    REFUSED = "Refused"
    NOT_REACHED = "NotReached"
    """It did not answer, or not completely in time."""
    CHANGED = "Changed"
    UNCHANGED = "Unchanged"


class RefusedObject(NamedTuple):
    """An object that a cluster would refuse, with its message."""

    group: str
    kind: str
    namespace: str
    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DryRunAnswer:
    """What applying an edit would do on one cluster.

    `removed` would be deleted; `unchecked` cannot be tried before others exist, such as their Namespace.
    `warnings` are those of the API server, by object.
    """

    placement: str
    cluster: str
    outcome: DryRunOutcome
    message: str = ""
    refusals: tuple[RefusedObject, ...] = ()
    changes: tuple[Difference, ...] = ()
    removed: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "DryRunAnswer":
        return cls(
            row["placement"],
            row["cluster"],
            DryRunOutcome(row["outcome"]),
            row["message"],
            tuple(RefusedObject(*one) for one in row["refusals"]),
            tuple(Difference.of(row["cluster"], DifferenceType.DIFF, one) for one in row["changes"]),
            tuple(row["removed"]),
            tuple(row["unchecked"]),
            tuple(row.get("warnings", ())),  # not in rows of older releases
        )

    @property
    def created(self) -> int:
        return sum(1 for one in self.changes if one.is_missing)

    @property
    def words(self) -> str:
        """Return what would happen on this cluster, such as `2 created, 1 changed`."""
        counts = {
            "refused": len(self.refusals),
            "created": self.created,
            "changed": len(self.changes) - self.created,
            "removed": len(self.removed),
            "not tried": len(self.unchecked),
        }
        return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)


class DryRunSentence(NamedTuple):
    """One sentence about all clusters, with the kind of its badge."""

    kind: str
    text: str


def dry_run_sentences(
    answers: Sequence[DryRunAnswer], *, not_checked: Mapping[str, int], left_out: int
) -> list[DryRunSentence]:
    """Return what a dry run found, the worst first."""
    by_outcome: dict[DryRunOutcome, list[DryRunAnswer]] = {one: [] for one in DryRunOutcome}
    for answer in answers:
        by_outcome[answer.outcome].append(answer)
    sentences = []
    if refused := by_outcome[DryRunOutcome.REFUSED]:
        names = _cluster_names(refused)
        sentences.append(DryRunSentence("failed", f"Would be refused on {_clusters(refused)}: {names}."))
    if silent := by_outcome[DryRunOutcome.NOT_REACHED]:
        sentences.append(DryRunSentence("unknown", f"Could not be checked: {_cluster_names(silent)}."))
    if changed := by_outcome[DryRunOutcome.CHANGED]:
        count = sum(len(one.changes) + len(one.removed) for one in changed)
        objects = counted(count, "object")
        sentences.append(DryRunSentence("healthy", f"Would change {objects} on {_clusters(changed)}."))
    if same := by_outcome[DryRunOutcome.UNCHANGED]:
        sentences.append(DryRunSentence("pending", f"Would change nothing on {_clusters(same)}."))
    if unchecked := sum(len(one.unchecked) for one in answers):
        text = f"{counted(unchecked, 'object')} not tried before what they need exists, such as a Namespace."
        sentences.append(DryRunSentence("pending", text))
    if warned := [one for one in answers if one.warnings]:
        count = sum(len(one.warnings) for one in warned)
        text = f"Warnings about {counted(count, 'object')} on {_clusters(warned)}: {_cluster_names(warned)}."
        sentences.append(DryRunSentence("attention", text))
    for driver, count in sorted(not_checked.items()):
        why = "simulated" if driver == SIMULATED else "without a connection"
        sentences.append(DryRunSentence("pending", f"{counted(count, 'cluster')} {why}: not checked."))
    if left_out:
        text = f"{counted(left_out, 'cluster')} not checked: {len(answers):,} is the limit of a dry run."
        sentences.append(DryRunSentence("attention", text))
    return sentences


def _clusters(answers: Sequence[DryRunAnswer]) -> str:
    return counted(len({one.cluster for one in answers}), "cluster")


def _cluster_names(answers: Sequence[DryRunAnswer]) -> str:
    return names_and_more(sorted({one.cluster for one in answers}), MOST_NAMES)
