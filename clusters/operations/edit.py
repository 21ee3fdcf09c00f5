"""Changes of labels, taints and cordon of one or many clusters."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NotRequired, TypedDict, Unpack

from django.contrib.auth.models import User
from django.db import transaction

from clusters.fleet import CORDON_KEY, CORDON_VALUE
from clusters.models import MemberCluster
from clusters.operations.change_log import lock_fleet
from clusters.operations.join import CLUSTER, ClusterSpec, JoinResult, replace_clusters
from fleetui.bulk import batched
from fleetui.concurrency import check_revision
from fleetui.errors import UnknownObject

Document = dict[str, Any]
CORDON = {"key": CORDON_KEY, "value": CORDON_VALUE, "effect": "NoSchedule"}


class UnknownClusterError(UnknownObject):
    """No cluster of the fleet has this name."""

    problem_type = "unknown-cluster"

    def __init__(self, name: str) -> None:
        super().__init__(f"cluster {name!r} not found")
        self.name = name


class EditOptions(TypedDict):
    """Who edits and when; `expected` is the revision that the edit is based on."""

    by: User | None
    now: datetime
    expected: NotRequired[int | None]


def change_labels(
    names: Collection[str],
    *,
    put: Mapping[str, str],
    remove: Collection[str] = (),
    **options: Unpack[EditOptions],
) -> list[JoinResult]:
    """Set and remove labels. Raises InvalidManifest, UnknownClusterError, RevisionConflict."""

    def edit(document: Document) -> None:
        before = document["metadata"].get("labels") or {}
        after = {key: value for key, value in {**before, **put}.items() if key not in remove}
        if after != before:
            document["metadata"]["labels"] = after

    return _edit(names, edit, **options)


def set_labels(name: str, labels: Mapping[str, str], **options: Unpack[EditOptions]) -> JoinResult:
    """Replace the labels of one cluster. Raises as `change_labels`."""

    def edit(document: Document) -> None:
        if dict(labels) != (document["metadata"].get("labels") or {}):
            document["metadata"]["labels"] = dict(labels)

    return _edit([name], edit, **options)[0]


def set_taints(name: str, taints: Sequence[Mapping[str, str]], **options: Unpack[EditOptions]) -> JoinResult:
    """Replace the taints of one cluster. Raises as `change_labels`."""

    def edit(document: Document) -> None:
        if list(taints) != (document["spec"].get("taints") or []):
            document["spec"]["taints"] = [dict(taint) for taint in taints]

    return _edit([name], edit, **options)[0]


def change_taints(
    names: Collection[str],
    *,
    add: Sequence[Mapping[str, str]] = (),
    remove: Sequence[Mapping[str, str]] = (),
    **options: Unpack[EditOptions],
) -> list[JoinResult]:
    """Add taints where missing, and remove others where present. Raises as `change_labels`."""

    def edit(document: Document) -> None:
        before = document["spec"].get("taints") or []
        after = [one for one in before if not any(_is_same(one, other) for other in remove)]
        after += [dict(one) for one in add if not any(_is_same(one, other) for other in after)]
        if after != before:
            document["spec"]["taints"] = after

    return _edit(names, edit, **options)


def add_taint(
    names: Collection[str], taint: Mapping[str, str], **options: Unpack[EditOptions]
) -> list[JoinResult]:
    """Add a taint where missing. Raises as `change_labels`."""
    return change_taints(names, add=[taint], **options)


def remove_taint(
    names: Collection[str], taint: Mapping[str, str], **options: Unpack[EditOptions]
) -> list[JoinResult]:
    """Remove a taint where present. Raises UnknownClusterError, RevisionConflict."""
    return change_taints(names, remove=[taint], **options)


def cordon(names: Collection[str], **options: Unpack[EditOptions]) -> list[JoinResult]:
    """Add the taint of the drain tool, which repels placements (`rules/lifecycle.md#evictions`)."""
    return add_taint(names, CORDON, **options)


def uncordon(names: Collection[str], **options: Unpack[EditOptions]) -> list[JoinResult]:
    return remove_taint(names, CORDON, **options)


def _is_same(taint: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all((taint.get(key) or "") == (other.get(key) or "") for key in ("key", "value", "effect"))


def _edit(
    names: Collection[str],
    edit: Callable[[Document], None],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> list[JoinResult]:
    with transaction.atomic():
        lock_fleet()
        rows = {
            row.name: row for part in batched(names) for row in MemberCluster.objects.filter(name__in=part)
        }
        wanted = []
        for name in names:
            row = rows.get(name)
            if row is None:
                raise UnknownClusterError(name)
            check_revision(CLUSTER, name, expected=expected, revision=row.revision)
            # Edits replace what they change in `metadata` and `spec`, so nothing deeper is copied.
            document = {
                **row.document,
                "metadata": dict(row.document["metadata"]),
                "spec": dict(row.document["spec"]),
            }
            edit(document)
            wanted.append(ClusterSpec(document))
        return replace_clusters(wanted, rows, by=by, now=now)
