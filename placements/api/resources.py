"""Resources on the hub: the list, one as its manifest, and applying many at once."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.bodies import LARGEST_BATCH, Placed, document_of, documents_of
from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint, caller, refuse_other_names
from placements.api.lists import asked, is_confirmed, listed, page_asked, rows_as
from placements.api.lookups import resource_of
from placements.api.preconditions import answered, expected_revision, tag_of
from placements.api.shapes.manifests import ANY_OBJECT, AppliedShape, ResourceManifest
from placements.api.shapes.queries import ConfirmQuery, ResourceQuery
from placements.api.shapes.rows import DeletedShape, ResourceRow
from placements.models import Resource as Row
from placements.operations.applying import apply_documents
from placements.operations.resources import Did, apply_resource, delete_resource
from placements.queries.lists import resources_matching
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.hub.objects import ObjectKey

CORE, NO_NAMESPACE = "core", "-"


class Resources(Endpoint):
    """What is on the hub."""

    @described("list_resources", {200: page_shape(ResourceRow)}, query=ResourceQuery)
    def get(self, request: Request) -> Response:
        """List objects, without their content."""
        wanted = asked(request, ResourceQuery)
        rows = resources_matching(kind=wanted["kind"], namespace=wanted["namespace"], text=wanted["q"])
        page = page_asked(rows.defer("content"), wanted, order=wanted["order"], unique="id")
        return listed(request, rows_as(ResourceRow, page.rows), page.after)


class Resource(Endpoint):
    """One object; the group is `core` where it has none, the namespace `-`."""

    @described("get_resource", {200: ResourceManifest}, has_tag=True)
    def get(self, request: Request, **place: str) -> Response:
        """Give the manifest as it was applied."""
        return _answer(request, resource_of(_key(**place)))

    @described(
        "put_resource",
        {200: ResourceManifest, 201: ResourceManifest},
        body=ResourceManifest,
        is_edit=True,
        has_tag=True,
    )
    def put(self, request: Request, **place: str) -> Response:
        """Apply one object; the same again changes nothing."""
        key = _key(**place)
        there = dict(zip(("group", "kind", "namespace", "name"), key, strict=True))
        expected = expected_revision(request, exists=Row.objects.filter(**there).exists())
        with Placed(document_of(request)) as document:
            _refuse_other_object(document, key)
            applied = apply_resource(document, **caller(request), expected=expected)
        return _answer(request, applied.resource, status=201 if applied.did is Did.CREATED else 200)

    @described("delete_resource", {200: DeletedShape}, is_edit=True)
    def delete(self, request: Request, **place: str) -> Response:
        """Delete an object, a Namespace with all that is in it; the answer lists what is gone."""
        gone = delete_resource(_key(**place), **caller(request), expected=expected_revision(request))
        return Response({"items": [str(row) for row in gone]})


def _key(*, group: str, kind: str, namespace: str, name: str) -> ObjectKey:
    return "" if group == CORE else group, kind, "" if namespace == NO_NAMESPACE else namespace, name


def _refuse_other_object(document: Any, key: ObjectKey) -> None:
    group, kind, namespace, name = key
    named = {"kind": kind, "metadata.namespace": namespace, "metadata.name": name}
    refuse_other_names(document, named)
    version = document.get("apiVersion")
    if isinstance(version, str) and version.rpartition("/")[0] != group:
        message = f"{version[:63]!r} is of another group than the address names"
        raise Faults([Fault("apiVersion", "conflict", message, group or "no group, such as v1")])
    metadata = document.get("metadata")
    if namespace and isinstance(metadata, dict) and not metadata.get("namespace"):
        raise Faults([Fault("metadata.namespace", "required", "is missing", namespace)])


def _answer(request: Request, row: Row, *, status: int = 200) -> Response:
    return answered(request, row.content, tag_of(row.revision), status=status)


class Apply(Endpoint):
    """Many documents at once."""

    largest_body = LARGEST_BATCH

    @described("apply", {200: AppliedShape}, body=ANY_OBJECT, query=ConfirmQuery, problems=(409,))
    def post(self, request: Request) -> Response:
        """Apply documents of every kind, all or none: documents, a List, or an array of them.

        What would unschedule a placement everywhere is refused (409) until `confirm` says so.
        """
        confirmed = is_confirmed(request)
        results = apply_documents(documents_of(request), **caller(request), confirmed=confirmed)
        return Response(AppliedShape({"items": results}).data)
