"""Overrides: the list, and one as its manifest."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.bodies import Placed, document_of
from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint, caller, refuse_other_names
from placements.api.lists import asked, listed, page_asked, rows_as
from placements.api.lookups import override_of
from placements.api.preconditions import answered, expected_revision, tag_of
from placements.api.shapes.queries import PageQuery
from placements.api.shapes.staged import OverrideManifest, OverrideRow
from placements.models import Override as Row
from placements.operations.did import Did
from placements.operations.overrides import delete_override, save_override
from placements.scheduling.faults import Fault, Faults

NO_NAMESPACE = "-"


class Overrides(Endpoint):
    """All overrides."""

    @described("list_overrides", {200: page_shape(OverrideRow)}, query=PageQuery)
    def get(self, request: Request) -> Response:
        """List overrides."""
        rows = Row.objects.defer("document")
        page = page_asked(rows, asked(request, PageQuery), order="name", unique="id")
        return listed(request, rows_as(OverrideRow, page.rows), page.after)


class Override(Endpoint):
    """One override; the namespace is `-` for one that is for clusters."""

    @described("get_override", {200: OverrideManifest}, has_tag=True)
    def get(self, request: Request, **place: str) -> Response:
        """Give the manifest as it was applied."""
        return _answer(request, override_of(**_key(**place)))

    @described(
        "put_override",
        {200: OverrideManifest, 201: OverrideManifest},
        body=OverrideManifest,
        is_edit=True,
        has_tag=True,
    )
    def put(self, request: Request, **place: str) -> Response:
        """Create an override or change it; it rolls out to the clusters to which it applies."""
        key = _key(**place)
        expected = expected_revision(request, exists=Row.objects.filter(**key).exists())
        with Placed(document_of(request)) as document:
            _refuse_other_override(document, key)
            saved = save_override(document, **caller(request), expected=expected)
        return _answer(request, saved.override, status=201 if saved.did is Did.CREATED else 200)

    @described("delete_override", {204: None}, is_edit=True)
    def delete(self, request: Request, **place: str) -> Response:
        """Delete an override; what it changed is rolled out without it."""
        key, expected = _key(**place), expected_revision(request)
        delete_override(key["kind"], key["namespace"], key["name"], **caller(request), expected=expected)
        return Response(status=204)


def _key(*, kind: str, namespace: str, name: str) -> dict[str, str]:
    return {"kind": kind, "namespace": "" if namespace == NO_NAMESPACE else namespace, "name": name}


def _refuse_other_override(document: Any, key: dict[str, str]) -> None:
    named = {"kind": key["kind"], "metadata.namespace": key["namespace"], "metadata.name": key["name"]}
    refuse_other_names(document, named)
    metadata = document.get("metadata")
    if key["namespace"] and isinstance(metadata, dict) and not metadata.get("namespace"):
        raise Faults([Fault("metadata.namespace", "required", "is missing", key["namespace"])])


def _answer(request: Request, row: Row, *, status: int = 200) -> Response:
    return answered(request, row.document, tag_of(row.revision), status=status)
