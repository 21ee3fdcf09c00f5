"""Applying manifests of all supported kinds: the operation behind `apply`.

Up to 500 documents are applied in one transaction, all or none, if that takes a short time. What takes longer
is checked first and then written in batches, so that others can write meanwhile.
"""

import hashlib
import json
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, connection, transaction
from django.db.models import Model, QuerySet

from clusters.manifest import parse_member
from clusters.operations.change_log import lock_fleet
from clusters.operations.join import (
    CLUSTER,
    ClusterSpec,
    JoinOutcome,
    dry_run,
    upsert_clusters,
)
from clusters.queries import current_fleet, load_fleet
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.effort import TooMuchWorkError
from fleetui.apimachinery.errors import FieldError, InvalidManifest, ManifestWarning
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.kinds import (
    APPROVAL_KIND,
    BUDGET_KIND,
    CLUSTER_OVERRIDE_KIND,
    EVICTION_KIND,
    MEMBER_KIND,
    NAMESPACED_APPROVAL_KIND,
    NAMESPACED_PLACEMENT_KIND,
    NAMESPACED_RUN_KIND,
    NAMESPACED_STRATEGY_KIND,
    OVERRIDE_KIND,
    PLACEMENT_KIND,
    STAGED_RUN_KIND,
    STAGED_STRATEGY_KIND,
    is_fleet_group,
    no_effect_reason,
)
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.secrets import HubObject, ObjectKey
from fleetui.apimachinery.yaml import Document, attach_lines
from fleetui.bulk import (
    batched,
)
from fleetui.middleware import RequestTooLongError
from fleetui.models import Event
from fleetui.permissions import check_change
from fleetui.transactions import try_out, write_in_parts
from placements.engine.checks.findings import Finding
from placements.engine.loss import ChangedFleet
from placements.engine.overlaps import overlaps_of, to_place
from placements.engine.overrides import idle_rule_warnings
from placements.engine.resource_manifest import parse_hub_object
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.disruption import parse_disruption_budget, parse_eviction
from placements.manifests.ocm import OCM_KIND
from placements.manifests.override import parse_cluster_override, parse_override
from placements.manifests.placement import (
    ClusterResourcePlacement,
    is_ocm_placement,
    parse_placement,
)
from placements.manifests.staged_update import (
    parse_approval_request,
    parse_staged_run,
    parse_staged_strategy,
)
from placements.models import (
    DisruptionBudget,
    Override,
    Placement,
    StagedRun,
    StagedStrategy,
)
from placements.services.boundary import NAMESPACE
from placements.services.checks import examine
from placements.services.disruption.budgets import BUDGET, save_budget
from placements.services.disruption.evictions import apply_eviction
from placements.services.disruption.queries import event_line
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.loss.evaluation import Impact, impact_on
from placements.services.overrides.operations import NOUNS, save_override
from placements.services.placements import (
    UnscheduledPlacement,
    UnschedulesEverything,
    check_placement_to_save,
    save_placement,
    warnings_of,
)
from placements.services.resources.operations import (
    RESOURCE,
    apply_resources,
    check_resources_to_apply,
    name_of,
    unchanged_resources,
    without_namespace,
)
from placements.services.resources.queries import hub_objects, selection_of
from placements.services.results import (
    PLACEMENT,
    SaveResult,
    name_on_hub,
    stored_document,
)
from placements.services.rollouts.operations import APPROVAL, apply_approval
from placements.services.rollouts.staged_runs import (
    STAGED_RUN,
    STAGED_STRATEGY,
    save_run,
    save_strategy,
)
from placements.services.snapshots import applied_objects, draft_cycle, placed_objects


@dataclass(frozen=True, slots=True)
class Result:
    """The result for one document; `message` is a message, if there is more than the result.

    `kind` and `name` are those of events and addresses; `object_kind` and `object_name` are in the manifest.
    """

    kind: str
    name: str
    did: str
    warnings: tuple[ManifestWarning, ...] = ()
    message: str = ""
    object_kind: str = ""
    object_name: str = ""

    def of(self, document: Document) -> "Result":
        metadata = mapping_at(document.data, "metadata")
        return replace(
            self,
            object_kind=document.data["kind"],
            object_name="/".join(
                filter(None, map(metadata.get, ("namespace", "name")))
            ),
        )


MOST_APPLIED = 50_000
"""Documents of one apply."""
MOST_AT_ONCE = 500
"""Documents that are applied in one transaction."""
BATCH = 250
"""Resources or clusters of a batch."""
OTHERS_AT_ONCE = 10
"""Documents of other kinds in a batch: each is saved on its own, and checked against the whole fleet."""
_STOPS = (
    DatabaseError,
    InvalidManifest,
    OSError,
    PermissionDenied,
    RequestTooLongError,
    TooMuchWorkError,
    UnschedulesEverything,
)
"""What may end an apply between two batches."""


class PartlyApplied(Exception):
    """A batch failed after others were written; `results` are those of the documents that are on the hub."""

    def __init__(
        self,
        cause: Exception,
        results: Sequence[Result],
        *,
        total: int,
    ) -> None:
        self.cause, self.results = cause, tuple(results)
        super().__init__(
            f"{len(results):,} of {total:,} documents are applied, and stay so. The next batch failed: "
            f"{cause} To apply the others, correct the cause and apply all documents again."
        )


class RefusedDocuments(InvalidManifest):
    """Documents with errors; `pairs` are the errors, each with its document."""

    def __init__(self, pairs: Sequence[tuple[Document, FieldError]]) -> None:
        errors = attach_lines(pairs)
        super().__init__(errors)
        documents = (document for document, _ in pairs)
        self.pairs = tuple(zip(documents, errors, strict=True))


class PreviewChangedError(Exception):
    """Applying would not do what the user saw in the preview; nothing is written."""


def digest_of(results: Iterable[Result], *, now: datetime) -> str:
    """Return a hash of what an apply did: the results, and each object before and after.

    Read inside of its transaction. Revisions distinguish two edits of a Secret, whose values are hidden.
    """
    events = Event.objects.filter(at=now).order_by("kind", "name", "verb", "pk")
    columns = ("kind", "name", "verb", "revision", "before", "after")
    done = [(result.kind, result.name, str(result.did)) for result in results]
    text = json.dumps([done, list(events.values_list(*columns))], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _check_preview(
    previewed: str,
    documents: Sequence[Document],
    done: Mapping[int, Result],
    *,
    now: datetime,
) -> None:
    """Raise PreviewChangedError where there was a preview, and of something else."""
    in_their_order = (done[id(document)] for document in documents)
    if previewed and previewed != digest_of(in_their_order, now=now):
        raise PreviewChangedError


def apply_documents(
    documents: Sequence[Document],
    *,
    by: User | None,
    now: datetime,
    confirmed: bool = False,
    strict: bool = False,
    previewed: str = "",
) -> list[Result]:
    """Apply resources, then member clusters, then what refers to them; return results in their order.

    `confirmed`: the user confirmed which placements are unscheduled everywhere. `strict`: policies and
    clusters of other systems are errors. `previewed`: the digest of the preview that the user confirmed.
    Raise InvalidManifest with the errors of all documents, each with its line, UnschedulesEverything or
    PreviewChangedError; nothing is changed then.

    With more than 500 documents to write, or where that takes longer than others may wait, and outside of a
    transaction, raise PartlyApplied for what occurs after a batch was written.
    """
    in_order = sorted(documents, key=lambda one: _RANKS.get(_kind(one), 0))
    _validate(in_order, documents, strict=strict)
    # Reading takes no lock: where thousands of documents are unchanged, the others hold it for a moment.
    results, as_of = _unchanged(documents, now=now)
    in_order = [document for document in in_order if id(document) not in results]
    unchanged = frozenset(results)
    _keep_fleet()

    def apply_part(part: Sequence[Document]) -> dict[int, Result]:
        several = len(documents) > 1
        return _apply(
            part, by=by, now=now, as_of=as_of, confirmed=confirmed, several=several
        )

    def write(part: Sequence[Document]) -> None:
        with transaction.atomic():  # also inside of another one
            applied = apply_part(part)
            if len(part) == len(in_order):
                _check_preview(previewed, documents, results | applied, now=now)
        results.update(applied)

    def divide() -> Iterator[list[Document]]:
        _check_before_batches(in_order, by=by, confirmed=confirmed)
        # A batch does not know what the next one does.
        if previewed:

            def try_all() -> None:
                done = results | apply_part(in_order)
                _check_preview(previewed, documents, done, now=now)

            try_out(try_all)
        return _batches(in_order)

    try:
        write_in_parts(in_order, write, most=MOST_AT_ONCE, divide=divide)
        if not in_order:
            _check_preview(previewed, documents, results, now=now)
    except _STOPS as error:
        if results.keys() == unchanged:
            raise
        written = [
            results[id(document)].of(document)
            for document in documents
            if id(document) in results
        ]
        raise PartlyApplied(error, written, total=len(documents)) from error
    return [results[id(document)].of(document) for document in documents]


def _keep_fleet() -> None:
    """Read the fleet before a transaction, in which each document would read it again."""
    if not connection.in_atomic_block:
        current_fleet()


def _check_before_batches(
    in_order: Sequence[Document], *, by: User | None, confirmed: bool
) -> None:
    """Raise for what can be known before anything is written, since a batch is not undone by the next one.

    Raise InvalidManifest, UnschedulesEverything, NotOfTeamError.
    """
    check_resources_to_apply(
        [resource.data for resource in _resources_in(in_order)], by=by
    )
    if _members_in(in_order):
        check_change(by, what="member clusters")
    errors: list[tuple[Document, FieldError]] = []
    emptied: list[UnscheduledPlacement] = []
    for document in in_order:
        if _KINDS.get(_kind(document)) is not _PLACEMENT:
            continue
        try:
            check_placement_to_save(document.data, by=by, confirmed=confirmed)
        except InvalidManifest as invalid:
            errors += _errors_of(document, invalid, several=True)
        except UnschedulesEverything as error:
            emptied += error.emptied
    _raise(errors)
    if emptied:
        raise UnschedulesEverything(emptied)


def _batches(in_order: Sequence[Document]) -> Iterator[list[Document]]:
    """Yield documents that are sorted in batches of one sort, Namespaces before what may be in them."""
    resources = sorted(
        _resources_in(in_order),
        key=lambda one: HubObject.of(one.data).key[:2] != NAMESPACE,
    )
    yield from batched(resources, BATCH)
    yield from batched(_members_in(in_order), BATCH)
    others = [
        document
        for document in in_order
        if _kind(document) in _KINDS and _kind(document) != MEMBER_KIND
    ]
    yield from batched(others, OTHERS_AT_ONCE)


def _unchanged(
    documents: Sequence[Document], *, now: datetime
) -> tuple[dict[int, Result], datetime | None]:
    """Return the results of the documents that are on the hub as they are written.

    The time is that as of which all reports of clusters in these documents are judged.
    """
    results: dict[int, Result] = {}
    resources, members = _resources_in(documents), _members_in(documents)
    for document, unchanged in zip(
        resources,
        unchanged_resources([resource.data for resource in resources]),
        strict=True,
    ):
        if unchanged:
            name = name_of(HubObject.of(unchanged.object.content))
            results[id(document)] = Result(
                RESOURCE, name, unchanged.result, unchanged.warnings
            )
    unchanged_members, as_of = _unchanged_members(members, now=now)
    results |= unchanged_members
    by_kind = grouped(
        ((kind, kind.model), document)
        for document in documents
        if (kind := _KINDS.get(_kind(document))) and kind.model
    )
    for (kind, model), several in by_kind.items():
        results |= kind.unchanged(model, several)
    return results, as_of


def _unchanged_members(
    documents: Sequence[Document], *, now: datetime
) -> tuple[dict[int, Result], datetime | None]:
    results, times = {}, []
    joins = dry_run([ClusterSpec(document.data) for document in documents], now=now)
    for document, (result, row, _) in zip(documents, joins, strict=True):
        if result is JoinOutcome.UNCHANGED:
            results[id(document)] = Result(CLUSTER, row.name, result)
        if "status" in document.data:
            times.append(row.as_of)
    return results, max(filter(None, times), default=None)


def _rows_of(
    model: type[Model], manifests: Collection[Any]
) -> dict[tuple[str, str], Any]:
    """Return what is on the hub with the names of these manifests, by namespace and name."""
    rows: QuerySet[Any] = model._default_manager.all()
    if model is Override:
        rows = rows.filter(kind__in={manifest.kind for manifest in manifests})
    return {
        (getattr(row, "namespace", ""), row.name): row
        for names in batched(sorted({manifest.metadata.name for manifest in manifests}))
        for row in rows.filter(name__in=names)
    }


def _apply(
    in_order: Sequence[Document],
    *,
    by: User | None,
    now: datetime,
    as_of: datetime | None,
    confirmed: bool,
    several: bool,
) -> dict[int, Result]:
    """Apply documents that are sorted, inside the caller's transaction; return results by document."""
    resources, members = _resources_in(in_order), _members_in(in_order)
    if members:
        check_change(by, what="member clusters")
        # Before any placement, in the order of the scheduler: otherwise a deadlock.
        lock_fleet()
    results: dict[int, Result] = {}
    if resources:
        applied = apply_resources(
            [resource.data for resource in resources], by=by, now=now
        )
        for document, saved in zip(resources, applied, strict=True):
            name = name_of(HubObject.of(saved.object.content))
            results[id(document)] = Result(RESOURCE, name, saved.result, saved.warnings)
    if members:
        joined = upsert_clusters(
            [ClusterSpec(member.data) for member in members],
            by=by,
            now=now,
            as_of=as_of,
        )
        for document, member in zip(members, joined, strict=True):
            results[id(document)] = Result(CLUSTER, member.name, member.result)
    others = in_order[len(resources) + len(members) :]
    save = partial(_save, by=by, now=now, confirmed=confirmed)
    return results | _save_each(others, save, several=several)


def _save_each(
    documents: Sequence[Document], save: Callable[[Any], Result], *, several: bool
) -> dict[int, Result]:
    results: dict[int, Result] = {}
    emptied: list[UnscheduledPlacement] = []
    errors: list[tuple[Document, FieldError]] = []
    for document in documents:
        try:
            results[id(document)] = save(document.data)
        except InvalidManifest as error:
            errors += _errors_of(document, error, several=several)
        except UnschedulesEverything as error:
            emptied += error.emptied
    _raise(errors)
    if emptied:
        raise UnschedulesEverything(emptied)
    return results


def _resources_in(documents: Iterable[Document]) -> list[Document]:
    return [document for document in documents if _kind(document) not in _KINDS]


def _members_in(documents: Iterable[Document]) -> list[Document]:
    return [document for document in documents if _kind(document) == MEMBER_KIND]


MOST_EXAMINED = 20


@dataclass(frozen=True, slots=True)
class ApplyPreview:
    """What applying documents would do: the results, each change of an object, the next decisions.

    `findings` are those of the checks about the first placements in the documents.
    """

    results: tuple[Result, ...]
    changes: tuple[Event, ...]
    digest: str
    impact: Impact
    findings: tuple[tuple[str, Finding], ...]


def preview_documents(
    documents: Sequence[Document],
    *,
    by: User | None,
    now: datetime,
    confirmed: bool = False,
    strict: bool = False,
) -> ApplyPreview:
    """Return what `apply_documents` would do. Raise what it raises.

    The documents are applied and the placements scheduled in a transaction that is rolled back: every check
    is that of the real operation, and nothing is written. Others wait for it no longer than for an apply.
    """

    def preview() -> ApplyPreview:
        before = dict(Placement.objects.values_list("pk", "generation"))
        results = apply_documents(
            documents, by=by, now=now, confirmed=confirmed, strict=strict
        )
        digest = digest_of(results, now=now)
        changes = tuple(Event.objects.filter(at=now).order_by("pk"))
        enqueue_affected_placements()
        after = Placement.objects.values_list("pk", "generation")
        due = [pk for pk, generation in after if before.get(pk) != generation]
        named = {result.name for result in results if result.kind == PLACEMENT}
        fleet = load_fleet()
        placed = (
            document.data
            for document, result in zip(documents, results, strict=True)
            if result.kind == PLACEMENT
        )
        manifests = [parse_placement(one) for one in islice(placed, MOST_EXAMINED)]
        cycles = [
            (
                manifest.full_name,
                manifest,
                draft_cycle(manifest, saved=None, fleet=fleet),
            )
            for manifest in manifests
        ]
        examined = examine(fleet, cycles)
        overlaps = _overlaps(cycles)
        return ApplyPreview(
            tuple(
                replace(
                    result, warnings=(*result.warnings, *overlaps.get(result.name, ()))
                )
                if result.kind == PLACEMENT
                else result
                for result in results
            ),
            changes,
            digest,
            impact_on(due, ChangedFleet(fleet), named=named),
            tuple(
                finding
                for name in examined.placements
                for finding in examined.findings_of(name)
            ),
        )

    _keep_fleet()
    return try_out(preview)


def preview_acceptable(
    documents: Sequence[Document],
    *,
    by: User | None,
    now: datetime,
    confirmed: bool = False,
    strict: bool = False,
) -> tuple[ApplyPreview | None, dict[int, list[FieldError]]]:
    """Return what applying the documents without errors would do, and the errors of the others by `id`.

    Raise what `preview_documents` raises, of documents only errors that belong to none of them.
    """
    refused: dict[int, list[FieldError]] = {}
    while rest := [document for document in documents if id(document) not in refused]:
        try:
            preview = preview_documents(
                rest, by=by, now=now, confirmed=confirmed, strict=strict
            )
        except RefusedDocuments as error:
            for document, problem in error.pairs:
                refused.setdefault(id(document), []).append(problem)
        else:
            return preview, refused
    return None, refused


def _overlaps(
    cycles: Sequence[tuple[str, ClusterResourcePlacement, Cycle]],
) -> dict[str, list[ManifestWarning]]:
    """Return warnings of what these placements and others on the hub, or two of these, would both apply."""
    if not cycles:
        return {}
    objects, drafts = tuple(hub_objects()), []
    for name, manifest, cycle in cycles:
        with suppress(InvalidManifest):
            selection = selection_of(manifest, objects)
            drafts.append(
                to_place(manifest, name, selection, schedule(cycle).picked_names)
            )
    wanted = frozenset[ObjectKey]().union(*(draft.objects for draft in drafts))
    names = {draft.placement for draft in drafts}
    others = [
        placed_object
        for placed_object in placed_objects(applied_objects(), of=wanted)
        if placed_object.placement not in names
    ]
    return {
        draft.placement: [
            overlap.warning for overlap in overlaps_of(draft, (*drafts, *others))
        ]
        for draft in drafts
    }


def _validate(
    in_order: Sequence[Document], documents: Sequence[Document], *, strict: bool
) -> None:
    """Raise InvalidManifest with the errors of all documents, and of those that are there twice."""
    if len(documents) > MOST_APPLIED:
        message = f"Too many: {len(documents):,} documents"
        raise InvalidManifest.of(
            "", "too-many", message, f"at most {MOST_APPLIED:,} documents at once"
        )
    errors: list[tuple[Document, FieldError]] = []
    for document in in_order:
        try:
            kind = _KINDS.get(_kind(document))
            (kind.parse if kind else parse_hub_object)(document.data)
        except InvalidManifest as invalid:
            errors += _errors_of(document, invalid, several=len(documents) > 1)
        else:
            if strict and (reason := no_effect_reason(document.data)):
                message = f"{document_name(document)}: {reason}"
                error = FieldError(
                    "kind", "no-effect", message, "kinds of this console"
                )
                errors.append((document, error))
    if not errors:
        resources = _resources_in(in_order)
        objects = [HubObject.of(resource.data) for resource in resources]
        errors += [(resources[at], error) for at, error in without_namespace(objects)]
    identities: set[tuple[str, ...]] = set()
    for document in documents:
        if metadata := mapping_at(document.data, "metadata"):
            group = str(document.data.get("apiVersion")).rpartition("/")[0]
            names = (str(metadata.get("namespace") or ""), str(metadata.get("name")))
            identity = (group, str(document.data.get("kind")), *names)
            if identity in identities:
                message = f"Duplicate value: {document_name(document)}"
                errors.append(
                    (document, FieldError("metadata.name", "duplicate", message))
                )
            identities.add(identity)
    _raise(errors)


def _raise(errors: Sequence[tuple[Document, FieldError]]) -> None:
    if errors:
        raise RefusedDocuments(errors)


def _kind(document: Document) -> str | None:
    """Return the kind of a document; one of another group is a resource like any other.

    That is a Placement, and a namespaced kind: other systems have kinds of the same names.
    """
    kind = mapping_at(document.data).get("kind")
    if kind == OCM_KIND and not is_ocm_placement(document.data):
        return None
    if kind in _NAMESPACED_KINDS and not is_fleet_group(
        document.data.get("apiVersion")
    ):
        return None
    return kind if isinstance(kind, str) else None


def _errors_of(
    document: Document, invalid: InvalidManifest, *, several: bool
) -> list[tuple[Document, FieldError]]:
    prefix = f"{document_name(document)}: " if several else ""
    return [
        (
            document,
            FieldError(
                error.path,
                error.code,
                f"{prefix}{error.message}",
                error.allowed,
                error.line,
            ),
        )
        for error in invalid.errors
    ]


def document_name(document: Document) -> str:
    kind = mapping_at(document.data).get("kind", "document")
    name = mapping_at(document.data, "metadata").get("name")
    return f"{kind} {name or document.number}"


def _save(
    data: Any,
    *,
    by: User | None,
    now: datetime,
    confirmed: bool,
) -> Result:
    kind = _KINDS[data["kind"]]
    if data["kind"] == EVICTION_KIND:
        eviction, is_new = apply_eviction(data, by=by, now=now)
        result = eviction.outcome if is_new else UNCHANGED
        return Result(
            EVICTION, str(eviction.name), result, message=event_line(eviction)
        )
    manifest = kind.parse(data)
    name = name_on_hub(manifest) if kind is _PLACEMENT else manifest.full_name
    if kind.save is None:  # a request for approval
        return Result(APPROVAL, name, apply_approval(data, by=by, now=now))
    options = (
        {"confirmed": confirmed, "manifest": manifest} if kind is _PLACEMENT else {}
    )
    saved = kind.save(data, by=by, now=now, **options)
    return Result(kind.noun, name, saved.result, saved.warnings)


EVICTION, UNCHANGED = "eviction", "unchanged"
_NAMESPACED_KINDS = (
    NAMESPACED_PLACEMENT_KIND,
    NAMESPACED_STRATEGY_KIND,
    NAMESPACED_RUN_KIND,
    NAMESPACED_APPROVAL_KIND,
)


class _Kind(NamedTuple):
    """How documents of a kind are parsed and saved; some have a separate operation instead."""

    parse: Callable[[Any], Any]
    noun: str = ""
    model: type[Model] | None = None
    save: Callable[..., SaveResult[Any]] | None = None

    def unchanged(
        self, model: type[Model], documents: Sequence[Document]
    ) -> dict[int, Result]:
        """Return the results of the documents of one kind that are on the hub as they are written."""
        manifests = {id(document): self.parse(document.data) for document in documents}
        there = _rows_of(model, manifests.values())
        results: dict[int, Result] = {}
        for document in documents:
            manifest = manifests[id(document)]
            row = there.get((manifest.namespace, manifest.metadata.name))
            if (
                row is None
                or getattr(row, "deleting_since", None)
                or plain_manifest(row.document) != stored_document(document.data)
            ):
                continue
            warnings: tuple[ManifestWarning, ...] = ()
            if isinstance(row, Placement):
                warnings = warnings_of(manifest)
            elif isinstance(row, Override):
                warnings = idle_rule_warnings(manifest, load_fleet())
            results[id(document)] = Result(
                self.noun, manifest.full_name, UNCHANGED, warnings
            )
        return results


_PLACEMENT = _Kind(parse_placement, PLACEMENT, Placement, save_placement)
_STRATEGY = _Kind(parse_staged_strategy, STAGED_STRATEGY, StagedStrategy, save_strategy)
_RUN = _Kind(parse_staged_run, STAGED_RUN, StagedRun, save_run)
_KINDS: Mapping[str | None, _Kind] = {
    MEMBER_KIND: _Kind(parse_member),
    CLUSTER_OVERRIDE_KIND: _Kind(
        parse_cluster_override, NOUNS[CLUSTER_OVERRIDE_KIND], Override, save_override
    ),
    OVERRIDE_KIND: _Kind(parse_override, NOUNS[OVERRIDE_KIND], Override, save_override),
    **dict.fromkeys((PLACEMENT_KIND, NAMESPACED_PLACEMENT_KIND, OCM_KIND), _PLACEMENT),
    BUDGET_KIND: _Kind(parse_disruption_budget, BUDGET, DisruptionBudget, save_budget),
    EVICTION_KIND: _Kind(parse_eviction),
    **dict.fromkeys((STAGED_STRATEGY_KIND, NAMESPACED_STRATEGY_KIND), _STRATEGY),
    **dict.fromkeys((STAGED_RUN_KIND, NAMESPACED_RUN_KIND), _RUN),
    **dict.fromkeys(
        (APPROVAL_KIND, NAMESPACED_APPROVAL_KIND), _Kind(parse_approval_request)
    ),
}
"""In the order of saving: what others refer to comes first."""
_RANKS = {kind: rank for rank, kind in enumerate(_KINDS, 1)}
