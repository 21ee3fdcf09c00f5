"""Staged update strategies, runs and approval requests of a live hub (10.1)."""

from collections.abc import Sequence
from copy import copy, deepcopy

from django.db.models import F, Q

from clusters.models import MirroredObject
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.words import full_name, split_full_name
from fleetui.audit import AuditEvent
from fleetui.bulk import batched
from placements.engine.rollout.staged_run import ApprovalPoint
from placements.explain.staged_updates import staged_document
from placements.hubs.kinds.base import text_of
from placements.hubs.kinds.kubefleet import PLACEMENT_GROUP, PREFIX
from placements.hubs.projection.documents import HubDocument, HubMoment
from placements.hubs.projection.events import APPROVED, HUB, HubEvents
from placements.hubs.projection.kinds import APPROVAL_KINDS, RUN_KINDS, STRATEGY_KINDS
from placements.hubs.projection.leniency import fill_document, understood
from placements.hubs.projection.placements import placement_keys
from placements.hubs.projection.rows import Conditions, RowKind, WrittenRow, write_rows
from placements.hubs.projection.staged_status import run_status_of
from placements.manifests.staged_update import parse_staged_run, parse_staged_strategy
from placements.models import (
    ApprovalRequest,
    ResourceSnapshot,
    StagedRun,
    StagedStrategy,
)
from placements.models.placements import LONGEST_NAME

NO_RUN = "its staged update run is not in the mirror"
_RUN = "staged-run"
"""The kind of events."""
_CONTROLLER = "cluster-staged-update-run-controller"
_SNAPSHOT = "stagedUpdateStrategySnapshot"
_SIDES = {"beforeStage": ApprovalPoint.BEFORE, "afterStage": ApprovalPoint.AFTER}
_APPROVAL_COLUMNS = (
    "uid",
    "requested_at",
    "approved_at",
    "approved_by",
    "accepted_at",
)


class StrategyRows(RowKind[StagedStrategy]):
    """Staged update strategies."""

    model = StagedStrategy
    mirrored = STRATEGY_KINDS
    noun = "staged-strategy"
    columns = ("document", "created_at", "revision")
    bookkeeping = ("updated_at",)
    is_namespaced = True

    def fill(self, row: StagedStrategy, document: HubDocument) -> bool:
        return fill_document(row, document, parse=parse_staged_strategy)


class RunRows(RowKind[StagedRun]):
    """Staged update runs; the placement of one may come later, or be deleted."""

    model = StagedRun
    mirrored = RUN_KINDS
    noun = _RUN
    columns = (
        "document",
        "revision",
        "generation",
        "hub_status",
        "placement_id",
        "placement_name",
        "resource_snapshot_id",
        "resource_number",
        "revision_number",
        "strategy",
        "plan",
        "sync_result",
        "status",
        "created_at",
        "created_by",
        "started_at",
        "started_by",
        "ended_at",
    )
    bookkeeping = ("progress_version",)
    is_namespaced = True

    def __init__(self, documents: Sequence[HubDocument], moment: HubMoment) -> None:
        super().__init__(documents, moment)
        self.placements = placement_keys(documents)
        rows = ResourceSnapshot.objects.filter(placement__in=self.placements.values())
        self.snapshots: dict[tuple[int | None, int | None], ResourceSnapshot] = {
            (one.placement_id, one.number): one
            for one in rows.only("placement", "number", "revision_number")
        }

    def fill(self, row: StagedRun, document: HubDocument) -> bool:
        pair = understood(document, parse_staged_run)
        if pair is None or len(pair[0].spec.placement_name) > LONGEST_NAME:
            document.error = document.error or "the name of the placement is too long"
            return False
        parsed, row.document = pair
        spec = parsed.spec
        status = mapping_at(document.content, "status")
        row.placement_name = full_name(document.row.namespace, spec.placement_name)
        row.generation = document.row.generation
        row.hub_status = deepcopy(dict(status)) or None
        index = text_of(
            status.get("resourceSnapshotIndexUsed") or spec.resource_snapshot_index,
            longest=9,
        )
        row.resource_number = int(index) if index.isdecimal() else None

        stages = mapping_at(status, _SNAPSHOT)
        namespace = (
            {"namespace": document.row.namespace} if document.row.namespace else {}
        )
        row.strategy = {
            "apiVersion": document.content["apiVersion"],
            "kind": STRATEGY_KINDS[bool(document.row.namespace)],
            "metadata": {"name": spec.staged_rollout_strategy_name, **namespace},
            "spec": dict(stages) or {"stages": []},
        }
        strategy = None
        if stages:
            inner = HubDocument(document.row, document.content)
            used = understood(inner, parse_staged_strategy, row.strategy)
            for path in inner.not_understood:
                document.reject(path.replace("spec", f"status.{_SNAPSHOT}", 1))
            if used:  # else the run is shown without its stages
                strategy = used[0].spec
                row.strategy = used[1]
        how_far = run_status_of(document, spec.state, strategy)
        row.status = how_far.status
        row.ended_at = how_far.ended_at
        row.plan = how_far.result.run.to_plain() if how_far.result else None
        row.sync_result = staged_document(how_far.result) if how_far.result else {}
        row.created_at = document.created_at
        row.created_by = document.manager("spec") or HUB
        row.started_at = how_far.started_at
        row.started_by = row.created_by if row.started_at else ""
        row.placement_id = self.placements.get(document.row.owner)
        key = (row.placement_id, row.resource_number)
        snapshot = self.snapshots.get(key)
        row.resource_snapshot = snapshot
        row.revision_number = snapshot.revision_number if snapshot else None
        return True

    def change(self, before: StagedRun, row: StagedRun) -> None:  # noqa: ARG002 -- of a kind
        row.progress_version += 1

    def conditions(self, row: StagedRun) -> Conditions:
        values = mapping_at(row.hub_status).get("conditions")
        conditions = map(mapping_at, values if isinstance(values, list) else [])
        return [one for one in conditions if one.get("type")]

    def follow(self, written: Sequence[WrittenRow[StagedRun]]) -> None:
        new = [one.document.full_name for one in written if one.before is None]
        mark_approvals(new)

    def delete(self, pks: Sequence[int]) -> None:
        """Delete runs; what is left of their requests is marked."""
        rows = StagedRun.objects.filter(pk__in=pks)
        names = sorted(rows.values_list("full_name", flat=True))
        rows.delete()
        mark_approvals(names)


def mark_approvals(runs: Sequence[str]) -> None:
    """Mark the requests of these runs to be projected again: they may have come before their run."""
    for part in batched(runs, size=50):
        is_of_run = Q()
        for namespace, name in map(split_full_name, part):
            is_of_run |= Q(namespace=namespace, name__startswith=f"{name}-")
        requests = MirroredObject.objects.filter(
            group=PLACEMENT_GROUP, kind__in=APPROVAL_KINDS
        )
        requests.filter(is_dirty=False).filter(is_of_run).update(is_dirty=True)


def project_approvals(documents: Sequence[HubDocument], moment: HubMoment) -> None:
    """Write approval requests; each belongs to the run that its label names."""
    places = {one.row.pk: _place(one) for one in documents}
    names = {run for run, *_ in places.values()}
    runs = {run.full_name: run for run in StagedRun.objects.filter(full_name__in=names)}
    there = {
        (row.run_id, row.stage, row.side): row
        for row in ApprovalRequest.objects.filter(
            run__in=[run.pk for run in runs.values()]
        )
    }
    made = []
    for one in documents:
        name, stage, side = places[one.row.pk]
        run = runs.get(name)
        if run is None:
            one.error = NO_RUN
        elif not stage or not side or one.full_name != f"{name}-{side}-{stage}":
            one.reject("metadata.labels")
            one.error = "its stage is not understood"
        else:
            before = there.get((run.pk, stage, side))
            place = {"run": run, "stage": stage, "side": side}
            row = copy(before) if before else ApprovalRequest(**place)
            _fill_approval(row, one)
            made.append((one, before, row))
    written = write_rows(ApprovalRequest, made, columns=_APPROVAL_COLUMNS)
    touched = {one.row.run_id for one in written}
    StagedRun.objects.filter(pk__in=touched).update(
        progress_version=F("progress_version") + 1
    )
    events = HubEvents(moment)
    for each in written:
        before = each.before
        row = each.row
        if before is not None and row.approved_at and not before.approved_at:
            name = places[each.document.row.pk][0]
            event = AuditEvent(APPROVED, _RUN, name, after={"stage": row.stage})
            events.add(event, by=row.approved_by)
    events.record()


def _place(document: HubDocument) -> tuple[str, str, str]:
    """Return run, stage and side of a request, by its labels; without them by its spec and name."""
    labels = mapping_at(document.content, "metadata", "labels")
    spec = document.spec
    run, stage = (
        text_of(labels.get(f"{PREFIX}{label}") or spec.get(key))
        for label, key in (
            ("targetUpdateRun", "parentStageRollout"),
            ("targetUpdatingStage", "targetStage"),
        )
    )
    task = labels.get(f"{PREFIX}taskType")
    side = _SIDES.get(task) if isinstance(task, str) else None
    if task is None:
        side = next(
            (
                each
                for each in ApprovalPoint
                if document.row.name == f"{run}-{each}-{stage}"
            ),
            None,
        )
    return full_name(document.row.namespace, run), stage[:63], str(side or "")


def _fill_approval(row: ApprovalRequest, document: HubDocument) -> None:
    """Set the columns of a request; an approval counts at its generation, or once it was accepted."""
    status = mapping_at(document.content, "status")
    conditions = document.conditions("status", "conditions")
    accepted_at = document.transition(status, "ApprovalAccepted", path="status")
    approved_at = document.transition(status, "Approved", path="status")
    is_current = (
        conditions.get("Approved", {}).get("observedGeneration")
        == document.row.generation
    )
    if not accepted_at and not is_current:
        approved_at = None
    row.uid = document.uid
    row.requested_at = document.created_at
    row.approved_at = approved_at or accepted_at
    row.approved_by = ""
    if row.approved_at:
        row.approved_by = document.manager("status", without=_CONTROLLER) or HUB
    row.accepted_at = accepted_at


def remove_approvals(_moment: HubMoment) -> int:
    """Delete the requests that the mirror has no more; return how many."""
    requests = MirroredObject.objects.filter(
        group=PLACEMENT_GROUP, kind__in=APPROVAL_KINDS
    )
    names = {full_name(*place) for place in requests.values_list("namespace", "name")}
    rows = ApprovalRequest.objects.values_list("pk", "run__full_name", "side", "stage")
    gone = [pk for pk, run, side, stage in rows if f"{run}-{side}-{stage}" not in names]
    for part in batched(gone):
        ApprovalRequest.objects.filter(pk__in=part).delete()
    return len(gone)
