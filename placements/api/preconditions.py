"""Revisions as entity tags, with a digest of the status, which changes without an edit.

The `metadata.resourceVersion` of a document is the same, without quotation marks. Edits compare the
revision alone, so `If-Match: "7"` is enough.
"""

import re
from http import HTTPStatus
from typing import Any

from django.utils.http import parse_etags
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.metadata import resource_version
from fleetui.concurrency import RevisionConflict
from fleetui.errors import FleetError
from fleetui.hub_scope import LOCAL_HUB, current_hub_id

_REVISION = re.compile(r'(?:W/)?"([0-9]{1,18})(?:-[0-9a-f]+)?"')


_VERSION = re.compile(r"([0-9]{1,18})(?:-[0-9a-f]+)?")


class StaleResourceVersion(Exception):
    """The document of a request has the `metadata.resourceVersion` of another revision."""

    def __init__(self, conflict: RevisionConflict) -> None:
        message, allowed = (
            "the object has been modified",
            f"{conflict.revision}, or none",
        )
        self.conflict = conflict
        self.error = FieldError(
            "metadata.resourceVersion", "conflict", message, allowed
        )
        super().__init__(str(conflict))


class PreconditionError(FleetError):
    """The condition of a request does not hold, whatever the revision is."""

    status = HTTPStatus.PRECONDITION_FAILED
    problem_type = "precondition"


def etag(revision: int | str, status: object = None) -> str:
    """Return the entity tag of an object; that of a live hub differs from that of any other hub.

    A hub that is removed and connected again has the same addresses, and other objects there.
    """
    hub = current_hub_id()
    content = status if hub == LOCAL_HUB else [hub, status]
    return f'"{resource_version(revision, content)}"'


def expected_revision(request: Request, *, exists: bool = True) -> int | None:
    """Return the revision an edit is based on: None for any, 0 for a new object. Raise PreconditionError."""
    if request.headers.get("If-None-Match", "").strip() == "*":
        return 0
    header = request.headers.get("If-Match")
    if header is None:
        return None
    if header.strip() == "*":
        if exists:
            return None
        raise PreconditionError(
            "If-Match: * requires an object that exists, and this one does not."
        )
    match = _REVISION.fullmatch(header.strip())
    if match is None:
        raise PreconditionError(
            'If-Match has no revision; send the ETag of the object, such as "7".'
        )
    return int(match[1])


def revision_in(document: Any) -> int | None:
    """Return the `metadata.resourceVersion` of a document as a revision, or None. Raise InvalidManifest."""
    metadata = document.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if version in (None, ""):
        return None
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise InvalidManifest.of(
            "metadata.resourceVersion",
            "invalid",
            "Invalid value",
            "the value that was read, or none",
        )
    return int(match[1])


def etag_response(
    request: Request, document: Any, tag: str, *, status: int = 200
) -> Response:
    """Respond with an object and its tag, or with 304 if the client already has it."""
    known = parse_etags(request.headers.get("If-None-Match", ""))
    if request.method in ("GET", "HEAD") and any(
        one in ("*", tag, f"W/{tag}") for one in known
    ):
        return Response(status=304, headers={"ETag": tag})
    return Response(document, status=status, headers={"ETag": tag})
