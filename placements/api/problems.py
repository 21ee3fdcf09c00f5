"""Errors as problem details (RFC 9457): the one exception handler of the API."""

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import IntegrityError, OperationalError
from django.http import Http404, HttpResponse
from django.http.multipartparser import MultiPartParserError
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.utils.encoders import JSONEncoder
from rest_framework.views import set_rollback

from clusters.operations.editing import UnknownClusterError
from clusters.operations.faults import NotSimulatedError
from fleetui.paging import BadCursorError
from fleetui.revisions import StaleEditError
from placements.api.bodies import BodyTooLargeError, MalformedBodyError, faults_in
from placements.api.preconditions import PreconditionError
from placements.operations.budgets import UnknownBudgetError
from placements.operations.emptying import CONFIRMATION, EmptiesPlacementError
from placements.operations.overrides import UnknownOverrideError
from placements.operations.placements import UnknownPlacementError
from placements.operations.resources import UnknownResourceError
from placements.operations.rollouts.hands import HandRefusedError
from placements.operations.staged.hands import UnknownRunError as UnknownStagedRunError
from placements.operations.staged.strategies import UnknownStrategyError
from placements.queries.records import AmbiguousDecisionError, UnknownDecisionError, UnknownInDecisionError
from placements.queries.runs import UnknownRunError
from placements.queries.what_if import UnknownScenarioError
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.storage import UnreadableRecordError
from placements.simulation.request import BadInputError

PROBLEM_TYPE = "application/problem+json"
_MOST_FAULTS = 200
_NAMESPACE = "urn:fleetui:problem"
Plain = dict[str, Any]


def answer_problem(error: Exception, context: Mapping[str, Any]) -> HttpResponse | None:  # noqa: ARG001 -- DRF's
    """Answer an error with a problem; an error that nobody expected goes on to Django."""
    write = next((_WRITERS[each] for each in type(error).__mro__ if each in _WRITERS), None)
    if write is None:
        return None
    set_rollback()
    problem = write(error)
    text = json.dumps(problem, cls=JSONEncoder, ensure_ascii=False)
    return HttpResponse(
        text.encode(errors="replace"),
        status=problem["status"],
        content_type=PROBLEM_TYPE,
        headers=_headers(error),
    )


def _headers(error: Exception) -> dict[str, str]:
    headers: dict[str, str] = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = str(getattr(error, "auth_header", ""))
    wait = getattr(error, "wait", None)
    if wait:
        headers["Retry-After"] = str(int(wait) + 1)
    return headers


def _problem(status: int, detail: str, kind: str = "", **more: Any) -> Plain:
    title = HTTPStatus(status).phrase
    return {
        "type": f"{_NAMESPACE}:{kind}" if kind else "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        **more,
    }


def _plainly(status: int, kind: str = "") -> Callable[[Exception], Plain]:
    return lambda error: _problem(status, str(error) or HTTPStatus(status).description, kind)


def fault_facts(fault: Fault, *, document: str = "") -> Plain:
    """Give a fault as plain data; `document` names the part of the body that it is of."""
    facts = {
        "path": fault.path,
        "code": fault.code,
        "message": fault.message,
        "allowed": fault.allowed,
        "line": fault.line,
    }
    return {**facts, "document": document} if document else facts


def _faulty(status: int, kind: str, detail: str, faults: Iterable[Plain]) -> Plain:
    listed = list(faults)
    return _problem(status, detail, kind, faults=listed[:_MOST_FAULTS], faultsCount=len(listed))


def _invalid(error: Faults) -> Plain:
    detail = _counted(len(error.faults))
    return _faulty(422, "invalid-document", detail, map(fault_facts, error.faults))


def _bad_input(error: BadInputError) -> Plain:
    facts = (fault_facts(fault, document=name) for name, fault in error.faults)
    return _faulty(422, "invalid-document", _counted(len(error.faults)), facts)


def _counted(count: int) -> str:
    return "The document has a fault." if count == 1 else f"The document has {count} faults."


def _malformed(error: MalformedBodyError) -> Plain:
    if any(fault.code == "too-large" for fault in error.faults):
        return _faulty(413, "too-large", str(error), map(fault_facts, error.faults))
    return _faulty(400, "malformed", str(error), map(fault_facts, error.faults))


def _stale(error: StaleEditError) -> Plain:
    return _problem(412, str(error), "stale-edit", revision=error.revision, changes=error.changes)


def _empties(error: EmptiesPlacementError) -> Plain:
    emptied = [{"placement": one.placement, "clusters": list(one.clusters)} for one in error.emptied]
    return _problem(409, str(error), "confirmation-needed", confirm=CONFIRMATION, placements=emptied)


def _ambiguous(error: AmbiguousDecisionError) -> Plain:
    return _problem(409, str(error), "ambiguous-id", decisions=list(error.ids))


def _of_framework(error: APIException) -> Plain:
    if isinstance(error, ValidationError):
        faults = [fault_facts(one) for one in faults_in(error.detail)]
        return _faulty(error.status_code, "bad-parameters", "The request has odd parameters.", faults)
    return _problem(error.status_code, str(error.detail))


_WRITERS: dict[type[Exception], Callable[[Any], Plain]] = {
    Faults: _invalid,
    BadInputError: _bad_input,
    MalformedBodyError: _malformed,
    BodyTooLargeError: _plainly(413, "too-large"),
    StaleEditError: _stale,
    PreconditionError: _plainly(412, "precondition"),
    UnknownClusterError: _plainly(404, "unknown-cluster"),
    UnknownPlacementError: _plainly(404, "unknown-placement"),
    UnknownResourceError: _plainly(404, "unknown-resource"),
    UnknownBudgetError: _plainly(404, "unknown-budget"),
    NotSimulatedError: _plainly(409, "not-simulated"),
    HandRefusedError: _plainly(409, "refused"),
    UnknownOverrideError: _plainly(404, "unknown-override"),
    UnknownStrategyError: _plainly(404, "unknown-strategy"),
    UnknownStagedRunError: _plainly(404, "unknown-run"),
    UnknownDecisionError: _plainly(404, "unknown-decision"),
    UnknownInDecisionError: _plainly(404, "unknown-cluster"),
    AmbiguousDecisionError: _ambiguous,
    UnreadableRecordError: _plainly(410, "unreadable-record"),
    EmptiesPlacementError: _empties,
    UnknownRunError: _plainly(404, "unknown-run"),
    UnknownScenarioError: _plainly(404, "unknown-scenario"),
    BadCursorError: _plainly(400, "bad-cursor"),
    APIException: _of_framework,
    Http404: lambda _error: _problem(404, "There is nothing at this address."),
    PermissionDenied: _plainly(403),
    RequestDataTooBig: _plainly(413, "too-large"),
    SuspiciousOperation: _plainly(400),
    BadRequest: _plainly(400),
    MultiPartParserError: _plainly(400, "malformed"),
    IntegrityError: lambda _error: _problem(409, "Somebody did the same at the same moment; send it again."),
    OperationalError: lambda _error: _problem(503, "The database is busy; send it again."),
}
