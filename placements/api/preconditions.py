"""Revisions as entity tags: an edit says what it started from, a reader what it has already.

A tag begins with the revision of the object; where there is a status, a digest of it follows, since a
status changes without an edit. Edits compare the revision alone, so `If-Match: "7"` will do.
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


def tag_of(revision: int, status: object = None) -> str:
    """Write the entity tag of an object."""
    if status is None:
        return f'"{revision}"'
    text = json.dumps(status, sort_keys=True, default=str)
    return f'"{revision}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"'


def expected_revision(request: Request, *, exists: bool = True) -> int | None:
    """Give the revision that an edit started from: None without a condition, 0 if it must be new.

    Raises PreconditionError.
    """
    if request.headers.get("If-None-Match", "").strip() == "*":
        return 0
    given = request.headers.get("If-Match")
    if given is None:
        return None
    if given.strip() == "*":
        if exists:
            return None
        raise PreconditionError("If-Match: * asks for an object that is there, and it is not.")
    found = _REVISION.fullmatch(given.strip())
    if found is None:
        raise PreconditionError('If-Match names no revision; send the ETag that you were given, such as "7".')
    return int(found[1])


def answered(request: Request, document: Any, tag: str, *, status: int = 200) -> Response:
    """Answer with an object and its tag, or with 304 when the reader has it already."""
    has = parse_etags(request.headers.get("If-None-Match", ""))
    if request.method in ("GET", "HEAD") and any(one in ("*", tag, f"W/{tag}") for one in has):
        return Response(status=304, headers={"ETag": tag})
    return Response(document, status=status, headers={"ETag": tag})
