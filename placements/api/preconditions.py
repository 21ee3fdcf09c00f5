"""Revisions as entity tags, with a digest of the status, which changes without an edit.

Edits compare the revision alone, so `If-Match: "7"` is enough.
"""

import hashlib
import json
import re
from typing import Any

from django.utils.http import parse_etags
from rest_framework.request import Request
from rest_framework.response import Response

_REVISION = re.compile(r'(?:W/)?"([0-9]{1,18})(?:-[0-9a-f]+)?"')


class PreconditionError(Exception):
    """The condition of a request does not hold, whatever the revision is."""


def etag(revision: int, status: object = None) -> str:
    """Return the entity tag of an object."""
    if status is None:
        return f'"{revision}"'
    text = json.dumps(status, sort_keys=True, default=str)
    return f'"{revision}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"'


def expected_revision(request: Request, *, exists: bool = True) -> int | None:
    """Return the revision that an edit is based on: None without a condition, 0 if it must be new.

    Raise PreconditionError.
    """
    if request.headers.get("If-None-Match", "").strip() == "*":
        return 0
    given = request.headers.get("If-Match")
    if given is None:
        return None
    if given.strip() == "*":
        if exists:
            return None
        raise PreconditionError("If-Match: * requires an object that exists, and this one does not.")
    match = _REVISION.fullmatch(given.strip())
    if match is None:
        raise PreconditionError('If-Match has no revision; send the ETag of the object, such as "7".')
    return int(match[1])


def etag_response(request: Request, document: Any, tag: str, *, status: int = 200) -> Response:
    """Respond with an object and its tag, or with 304 if the client already has it."""
    known = parse_etags(request.headers.get("If-None-Match", ""))
    if request.method in ("GET", "HEAD") and any(one in ("*", tag, f"W/{tag}") for one in known):
        return Response(status=304, headers={"ETag": tag})
    return Response(document, status=status, headers={"ETag": tag})
