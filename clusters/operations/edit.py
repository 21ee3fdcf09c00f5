"""Changes of labels, taints and cordon of one or many clusters."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NotRequired, TypedDict, Unpack

from django.contrib.auth.models import User
from django.db import transaction

from clusters.fleet import CORDON_KEY, CORDON_VALUE
from clusters.models import MemberCluster
from clusters.operations.change_log import lock_fleet
from clusters.operations.join import (
    CLUSTER,
    ClusterSpec,
    JoinResult,
    changed_keys,
    replace_clusters,
)
from fleetui.bulk import batched
from fleetui.concurrency import check_revision
from fleetui.errors import UnknownObject

Document = dict[str, Any]
Labels = dict[str, str]
Taints = list[dict[str, str]]
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


def clusters_named(names: Collection[str]) -> list[MemberCluster]:
    """Return the clusters of these names, in their order. Raise UnknownClusterError."""
    rows = {
        row.name: row
        for part in batched(names)
        for row in MemberCluster.objects.filter(name__in=part)
    }
    for name in names:
        if name not in rows:
            raise UnknownClusterError(name)
    return [rows[name] for name in names]


def change_labels(
    names: Collection[str],
    *,
    put: Mapping[str, str],
    remove: Collection[str] = (),
    replaces: bool = False,
    **options: Unpack[EditOptions],
) -> list[JoinResult]:
    """Set and remove labels; with `replaces` those in `put` are all that is left.

    Raises InvalidManifest, UnknownClusterError, RevisionConflict.
    """

    def edit(document: Document) -> None:
        before = document["metadata"].get("labels") or {}
        kept = {} if replaces else before
        after = {
            key: value for key, value in {**kept, **put}.items() if key not in remove
        }
        if after != before:
            document["metadata"]["labels"] = after

    return _edit(names, edit, **options)


def change_taints(
    names: Collection[str],
    *,
    add: Sequence[Mapping[str, str]] = (),
    remove: Sequence[Mapping[str, str]] = (),
    replaces: bool = False,
    **options: Unpack[EditOptions],
) -> list[JoinResult]:
    """Add taints where missing, and remove others where present; with `replaces` those in `add` are all.

    Raises as `change_labels`.
    """

    def edit(document: Document) -> None:
        before = document["spec"].get("taints") or []
        kept = [] if replaces else before
        after = [
            one for one in kept if not any(_is_same(one, other) for other in remove)
        ]
        after += [
            dict(one) for one in add if not any(_is_same(one, other) for other in after)
        ]
        if after != before:
            document["spec"]["taints"] = after

    return _edit(names, edit, **options)


def replace_labels_and_taints(
    names: Collection[str],
    *,
    labels: Mapping[str, str],
    taints: Sequence[Mapping[str, str]],
    **options: Unpack[EditOptions],
) -> list[JoinResult]:
    """Replace labels and taints as one change. Raises as `change_labels`."""

    def edit(document: Document) -> None:
        document["metadata"]["labels"], document["spec"]["taints"] = (
            dict(labels),
            list(taints),
        )

    return _edit(names, edit, **options)


def undo_edits(
    edits: Mapping[str, tuple[Document, Document]], *, by: User | None, now: datetime
) -> list[str]:
    """Restore labels and taints, from what edits of clusters found and what they wrote.

    Return the clusters whose labels or taints have been changed since: they stay as they are.
    """
    changed_since = []

    def restore(document: Document) -> None:
        before, after = edits[document["metadata"]["name"]]
        labels = _labels_before(
            *(one["metadata"].get("labels") or {} for one in (document, before, after))
        )
        taints = _taints_before(
            *(one["spec"].get("taints") or [] for one in (document, before, after))
        )
        if labels is None or taints is None:
            changed_since.append(document["metadata"]["name"])
            return
        for part, key, value in (
            ("metadata", "labels", labels),
            ("spec", "taints", taints),
        ):
            document[part].pop(key, None)
            if value or key in before[part]:
                document[part][key] = value

    _edit(edits, restore, by=by, now=now)
    return changed_since


def _labels_before(labels: Labels, old: Labels, new: Labels) -> Labels | None:
    """Return labels as before a change from `old` to `new`; None where they are not as it wrote them."""
    if labels == new:
        return old
    keys = changed_keys(old, new)
    if any(labels.get(key) != new.get(key) for key in keys):
        return None
    others = {key: value for key, value in labels.items() if key not in keys}
    return {**others, **{key: old[key] for key in keys if key in old}}


def _taints_before(taints: Taints, old: Taints, new: Taints) -> Taints | None:
    """Return taints as before a change from `old` to `new`; None where they are not as it wrote them."""
    added = [taint for taint in new if taint not in old]
    removed = [taint for taint in old if taint not in new]
    if any(taint not in taints for taint in added) or any(
        taint in taints for taint in removed
    ):
        return None
    kept = [taint for taint in old if taint in taints or taint in removed]
    return kept + [taint for taint in taints if taint not in old and taint not in added]


def cordon(names: Collection[str], **options: Unpack[EditOptions]) -> list[JoinResult]:
    """Add the taint of the drain tool, which repels placements (`rules/lifecycle.md#evictions`)."""
    return change_taints(names, add=[CORDON], **options)


def uncordon(
    names: Collection[str], **options: Unpack[EditOptions]
) -> list[JoinResult]:
    return change_taints(names, remove=[CORDON], **options)


def _is_same(taint: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(
        (taint.get(key) or "") == (other.get(key) or "")
        for key in ("key", "value", "effect")
    )


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
        rows = clusters_named(names)
        wanted = []
        for row in rows:
            check_revision(CLUSTER, row.name, expected=expected, revision=row.revision)
            # Edits replace what they change in `metadata` and `spec`, so nothing deeper is copied.
            document = {
                **row.document,
                "metadata": dict(row.document["metadata"]),
                "spec": dict(row.document["spec"]),
            }
            edit(document)
            wanted.append(ClusterSpec(document))
        return replace_clusters(wanted, {row.name: row for row in rows}, by=by, now=now)
