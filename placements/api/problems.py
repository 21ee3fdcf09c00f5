"""Errors as problem details (RFC 9457): the one exception handler of the API."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from django.core.exceptions import (
    BadRequest,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
)
from django.db import IntegrityError
from django.http import Http404, HttpResponse
from django.http.multipartparser import MultiPartParserError
from rest_framework import serializers
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.utils.encoders import JSONEncoder
from rest_framework.views import set_rollback

from clusters.drivers.kubernetes.check import CheckStep
from clusters.operations.connection import FAILED_CHECK, ConnectionCheckFailed
from clusters.operations.importing import ImportCheckFailed
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.words import counted
from fleetui.environment import environment_problem, note_problem
from fleetui.errors import FleetError
from placements.api.parsers import MalformedBodyError, errors_in
from placements.api.preconditions import StaleResourceVersion
from placements.api.serializers import (
    AppliedDocumentSerializer,
    CamelCaseSerializer,
    fields_of,
    names,
    text,
)
from placements.services.apply import PartlyApplied
from placements.services.simulate.request import BadInputError

PROBLEM_TYPE = "application/problem+json"
_MOST_ERRORS = 200
Plain = dict[str, Any]


@fields_of(
    FieldError,
    "path",
    "code",
    "message",
    "allowed",
    "line",
    "document",
    path="The field, such as `spec.policy.numberOfClusters`.",
    code="A stable code, for programs.",
    allowed="What is allowed, if that can be listed.",
)
class FieldErrorSerializer(CamelCaseSerializer):
    """One error in the request."""

    document = serializers.CharField(required=False, help_text="The part of the body.")


class ChangeSerializer(CamelCaseSerializer):
    """A change that was saved in between."""

    by = serializers.CharField()
    what = serializers.CharField()
    at = serializers.DateTimeField()
    revision = serializers.IntegerField(allow_null=True)


@fields_of(
    CheckStep,
    "step",
    "ok",
    "message",
    "hint",
    "is_optional",
    is_optional="The cluster works without it.",
)
class CheckStepSerializer(CamelCaseSerializer):
    """One step of the check of a connection; `ok` is null where it was not run."""


class UnscheduledPlacementSerializer(CamelCaseSerializer):
    """A placement that a change would remove from all its clusters."""

    placement = serializers.CharField()
    clusters = names()


class HubStatusSerializer(CamelCaseSerializer):
    """The answer of a live hub to a write."""

    code = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()
    webhook = serializers.CharField(allow_blank=True)
    causes = FieldErrorSerializer(many=True)


class FieldConflictSerializer(CamelCaseSerializer):
    """A field that another manager of the hub owns."""

    path = text("name")
    manager = serializers.CharField(allow_blank=True)
    operation = serializers.CharField(allow_blank=True)
    time = text("at", allow_blank=True)
    ours = serializers.JSONField(allow_null=True)
    theirs = serializers.JSONField(allow_null=True)


class ProblemSerializer(CamelCaseSerializer):
    """Problem details (RFC 9457)."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    faults = FieldErrorSerializer(many=True, required=False)
    faults_count = serializers.IntegerField(required=False)
    revision = serializers.IntegerField(required=False)
    changes = ChangeSerializer(many=True, required=False)
    decisions = names(required=False)
    confirm = serializers.CharField(
        required=False,
        help_text="Repeat the request with this value as the parameter `confirm`.",
    )
    placements = UnscheduledPlacementSerializer(many=True, required=False)
    steps = CheckStepSerializer(many=True, required=False)
    hub_status = HubStatusSerializer(required=False)
    conflicts = FieldConflictSerializer(many=True, required=False)
    applied = AppliedDocumentSerializer(
        many=True,
        required=False,
        help_text="What a large apply had written before the error. The same apply again finds it unchanged.",
    )


def answer_problem(error: Exception, context: Mapping[str, Any]) -> HttpResponse | None:  # noqa: ARG001 -- DRF's
    headers: dict[str, str] = {}
    source = error.cause if isinstance(error, PartlyApplied) else error
    known = (_WRITERS[each] for each in type(source).__mro__ if each in _WRITERS)
    if cause := environment_problem(source):
        note_problem(cause)
        problem = _problem(503, str(cause), cause.code)
        headers["Retry-After"] = str(cause.retry_after)
    elif write := next(known, None):
        problem = write(source)
    elif source is error:
        return None
    else:
        problem = _problem(500, "")
    if isinstance(error, PartlyApplied):
        applied = AppliedDocumentSerializer(error.results, many=True).data
        problem |= {"detail": str(error), "applied": applied}
    set_rollback()
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = str(getattr(error, "auth_header", ""))
    if getattr(error, "wait", None):
        headers["Retry-After"] = str(int(getattr(error, "wait", 0)) + 1)
    content = json.dumps(problem, cls=JSONEncoder, ensure_ascii=False).encode(
        errors="replace"
    )
    return HttpResponse(
        content, status=problem["status"], content_type=PROBLEM_TYPE, headers=headers
    )


def _problem(status: int, detail: str, kind: str = "", **more: Any) -> Plain:
    return {
        "type": f"urn:fleetui:problem:{kind}" if kind else "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **more,
    }


def _as(status: int, kind: str = "") -> Callable[[Exception], Plain]:
    """Return the writer of errors whose text is the whole detail."""
    return lambda error: _problem(
        status, str(error) or HTTPStatus(status).description, kind
    )


def error_facts(one: FieldError, *, document: str = "") -> Plain:
    """Return a field error as plain data; `document` is its part of the body."""
    facts = asdict(one)
    return {**facts, "document": document} if document else facts


def _field_errors(
    status: int,
    kind: str,
    faults: Iterable[Plain],
    detail: str = "",
) -> Plain:
    facts = list(faults)
    return _problem(
        status,
        detail or f"The document has {counted(len(facts), 'error')}.",
        kind,
        faults=facts[:_MOST_ERRORS],
        faultsCount=len(facts),
    )


def _malformed(error: MalformedBodyError) -> Plain:
    is_too_large = any(field_error.code == "too-large" for field_error in error.errors)
    status, kind = (413, "too-large") if is_too_large else (400, "malformed")
    return _field_errors(status, kind, map(error_facts, error.errors), str(error))


_WRITERS: dict[type[Exception], Callable[[Any], Plain]] = {
    FleetError: lambda error: _problem(
        error.status, str(error), error.problem_type, **error.problem_facts()
    ),
    InvalidManifest: lambda error: _field_errors(
        422, error.problem_type, map(error_facts, error.errors)
    ),
    BadInputError: lambda error: _field_errors(
        422,
        error.problem_type,
        (error_facts(one, document=name) for name, one in error.errors),
    ),
    MalformedBodyError: _malformed,
    StaleResourceVersion: lambda error: {
        **_field_errors(409, "stale-edit", [error_facts(error.error)], str(error)),
        **error.conflict.problem_facts(),
    },
    ConnectionCheckFailed: lambda error: _problem(
        409,
        str(error),
        error.problem_type,
        confirm=error.result.confirm,
        steps=CheckStepSerializer(error.result.steps, many=True).data,
    ),
    ImportCheckFailed: lambda error: _problem(
        409, str(error), error.problem_type, confirm=FAILED_CHECK
    ),
    ValidationError: lambda error: _field_errors(
        error.status_code,
        "bad-parameters",
        map(error_facts, errors_in(error.detail)),
        "The request has invalid parameters.",
    ),
    APIException: lambda error: _problem(error.status_code, str(error.detail)),
    Http404: lambda _error: _problem(404, "Nothing found at this address."),
    PermissionDenied: _as(403),
    RequestDataTooBig: _as(413, "too-large"),
    SuspiciousOperation: _as(400),
    BadRequest: _as(400),
    MultiPartParserError: _as(400, "malformed"),
    IntegrityError: lambda _error: _problem(
        409, "Conflict with a concurrent request; try again."
    ),
}
"""What problem details say of an error, by its class or the nearest base of it."""
