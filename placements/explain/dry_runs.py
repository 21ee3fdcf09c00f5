"""What clusters answered to a dry run: an outcome for each, and sentences for all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from clusters.drivers.base import SIMULATED
from fleetui.apimachinery.words import counted, names_and_more
from placements.explain.cluster_objects import Difference

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

    @property
    def created(self) -> int:
        return sum(1 for change in self.changes if change.is_missing)

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


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The answers of the clusters, the worst first.

    `not_checked` counts the clusters without an API server, by their driver, `left_out` those beyond the
    limit.
    """

    answers: tuple[DryRunAnswer, ...] = ()
    not_checked: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0

    def sentences(self) -> list[DryRunSentence]:
        """Return what the dry run found, the worst first."""
        by_outcome: dict[DryRunOutcome, list[DryRunAnswer]] = {
            outcome: [] for outcome in DryRunOutcome
        }
        for answer in self.answers:
            by_outcome[answer.outcome].append(answer)
        refused = by_outcome[DryRunOutcome.REFUSED]
        silent = by_outcome[DryRunOutcome.NOT_REACHED]
        changed = by_outcome[DryRunOutcome.CHANGED]
        same = by_outcome[DryRunOutcome.UNCHANGED]
        warned = [answer for answer in self.answers if answer.warnings]
        changes = sum(len(answer.changes) + len(answer.removed) for answer in changed)
        unchecked = counted(
            sum(len(answer.unchecked) for answer in self.answers), "object"
        )
        warnings = counted(sum(len(answer.warnings) for answer in warned), "object")
        left_out = counted(self.left_out, "cluster")
        rows = (
            (
                refused,
                "failed",
                f"Would be refused on {_clusters(refused)}: {_cluster_names(refused)}.",
            ),
            (silent, "unknown", f"Could not be checked: {_cluster_names(silent)}."),
            (
                changed,
                "healthy",
                f"Would change {counted(changes, 'object')} on {_clusters(changed)}.",
            ),
            (same, "pending", f"Would change nothing on {_clusters(same)}."),
            (
                any(answer.unchecked for answer in self.answers),
                "pending",
                f"{unchecked} not tried before what they need exists, such as a Namespace.",
            ),
            (
                warned,
                "attention",
                f"Warnings about {warnings} on {_clusters(warned)}: {_cluster_names(warned)}.",
            ),
            *(
                (
                    True,
                    "pending",
                    f"{counted(count, 'cluster')} {_WHY_NOT.get(driver, 'without a connection')}: not checked.",
                )
                for driver, count in sorted(self.not_checked.items())
            ),
            (
                self.left_out,
                "attention",
                f"{left_out} not checked: {len(self.answers):,} is the limit of a dry run.",
            ),
        )
        return [DryRunSentence(kind, text) for applies, kind, text in rows if applies]


_WHY_NOT = {SIMULATED: "simulated"}


def _clusters(answers: Sequence[DryRunAnswer]) -> str:
    return counted(len({answer.cluster for answer in answers}), "cluster")


def _cluster_names(answers: Sequence[DryRunAnswer]) -> str:
    return names_and_more(sorted({answer.cluster for answer in answers}), MOST_NAMES)
