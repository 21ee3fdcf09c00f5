"""An older policy of a placement as a manifest: what restoring it would bring to the editor."""

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Max

from fleetui.models import Event
from placements.models import Placement, PolicySnapshot
from placements.scheduling.door.ocm_placement import is_ocm_placement
from placements.scheduling.semantics import DEFAULT_SEMANTICS
from placements.scheduling.spec import SEMANTICS_ANNOTATION, SPREAD_OPTIONS_ANNOTATION

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Restoring:
    """The manifest, None where it cannot be had again; `is_todays` when it asks for what holds anyway."""

    manifest: Document | None
    is_todays: bool


def restoring(placement: Placement, snapshot: PolicySnapshot) -> Restoring:
    """Say what restoring a policy snapshot would bring."""
    return restorings(placement, [snapshot])[snapshot.number]


def restorings(placement: Placement, snapshots: Iterable[PolicySnapshot]) -> dict[int, Restoring]:
    """Say the same of several, by their numbers."""
    older = list(snapshots)
    latest = placement.policy_snapshots.get(is_latest=True)
    numbers = _numbers_under(placement, [one.number for one in older])
    return {
        one.number: Restoring(
            _manifest(placement, one, number),
            is_todays=one.content_hash == latest.content_hash and number == placement.number_of_clusters,
        )
        for one in older
        for number in [numbers[one.number]]
    }


def manifest_with(placement: Placement, snapshot: PolicySnapshot) -> Document | None:
    """Give today's manifest with the policy of a snapshot; None where no note of what was written is left."""
    return _manifest(placement, snapshot, number_under(placement, snapshot))


def _manifest(placement: Placement, snapshot: PolicySnapshot, number: int | None) -> Document | None:
    """Give the manifest for a number of clusters.

    The policy of a ClusterResourcePlacement is one part of it and can be written from the snapshot. That of
    a Placement of OCM is all of its spec, in other words than the snapshot's, and comes from its last save.
    """
    document = deepcopy(placement.document)
    options = json.dumps(snapshot.options) if snapshot.options else ""
    if is_ocm_placement(document):
        return _with_spec_of(document, saved_until(placement, snapshot.created_at), number)
    wanted = {} if number is None else {"numberOfClusters": number}
    document["spec"]["policy"] = {**snapshot.policy, **wanted}
    named = "" if snapshot.semantics == DEFAULT_SEMANTICS else snapshot.semantics
    return _noted(document, {SEMANTICS_ANNOTATION: named, SPREAD_OPTIONS_ANNOTATION: options})


def _with_spec_of(document: Document, then: Document | None, number: int | None) -> Document | None:
    if then is None:
        return None
    document["spec"] = deepcopy(then["spec"])
    if number is not None:
        document["spec"]["numberOfClusters"] = number
    noted = (then["metadata"].get("annotations") or {}).get(SPREAD_OPTIONS_ANNOTATION, "")
    return _noted(document, {SPREAD_OPTIONS_ANNOTATION: noted})


def _noted(document: Document, annotations: dict[str, str]) -> Document:
    """Give the manifest with these annotations, an empty one taken away."""
    kept = {**(document["metadata"].pop("annotations", None) or {}), **annotations}
    if notes := {key: text for key, text in kept.items() if text or key not in annotations}:
        document["metadata"]["annotations"] = notes
    return document


def saved_until(placement: Placement, moment: datetime) -> Document | None:
    """Give the manifest as it was saved last until then, None where no note of that is left."""
    saved = Event.objects.filter(kind="placement", name=placement.name, verb__in=("created", "changed"))
    within = saved.filter(at__gte=placement.created_at, at__lte=moment, after__isnull=False)
    event = within.order_by("-id").first()
    return event.after if event else None


def number_under(placement: Placement, snapshot: PolicySnapshot) -> int | None:
    """Give how many clusters were wanted last under a policy; another number makes no snapshot of its own."""
    return _numbers_under(placement, [snapshot.number])[snapshot.number]


def _numbers_under(placement: Placement, policies: Sequence[int]) -> dict[int, int | None]:
    """Give the same by the number of the policy."""
    made = placement.decisions.filter(policy_number__in=policies)
    last = made.values("policy_number").annotate(last=Max("number")).values("last")
    rows = placement.decisions.filter(number__in=last).values_list("policy_number", "wanted")
    return dict.fromkeys(policies, placement.number_of_clusters) | dict(rows)


def decisions_under(placement: Placement, number: int) -> Any:
    """Give the decisions under a policy snapshot, the latest first."""
    found = placement.decisions.filter(policy_number=number).order_by("-number")
    return found.select_related("record").defer("record__content")
