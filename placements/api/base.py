"""What all viewsets share: paths, permissions, query parameters, pages of rows, and manifests."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import Http404
from django.urls import register_converter
from django.urls.converters import IntConverter, StringConverter
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import DynamicRoute, Route, SimpleRouter
from rest_framework.serializers import Serializer
from rest_framework.viewsets import GenericViewSet

from fleetui.access.secret_values import manifest_for, plain_manifest
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    raise_errors,
)
from fleetui.apimachinery.patches import merged
from fleetui.apimachinery.words import split_full_name
from fleetui.bulk import first_or_raise
from fleetui.concurrency import RevisionConflict
from fleetui.hub_backend import current_backend
from fleetui.hub_scope import LOCAL_HUB, UNKNOWN_HUB, current_hub_id
from fleetui.middleware import body_size, reserve, settle
from fleetui.pagination import page_of
from fleetui.permissions import (
    LabelsOf,
    Role,
    may_administer_clusters,
    may_change_at,
    may_read,
)
from placements.api.filters import DryRunQuery, NoQuery, PageQuery
from placements.api.parsers import PATCH_PARSERS, object_in, read_document
from placements.api.preconditions import (
    StaleResourceVersion,
    etag,
    etag_response,
    expected_revision,
    revision_in,
)
from placements.api.schema import Schema, documented, operation, page_serializer
from placements.services.actions import Action, ActionKind
from placements.services.results import read_manifest

_MOST_WARNINGS, _LONGEST_WARNING = 10, 300
Params = dict[str, Any]
Rows = QuerySet[Any]


class NameConverter(StringConverter):
    """A name or a key in a path: no slash, no control character."""

    regex = r"[^/\x00-\x1f\x7f]{1,317}"


class DecisionConverter(NameConverter):
    """The id of a decision or a prefix of it; the query reports what is wrong with it."""

    regex = r"[^/.\x00-\x1f\x7f]{1,80}"


class NumberConverter(IntConverter):
    """A number that fits into a database column."""

    regex = r"[0-9]{1,9}"


register_converter(NameConverter, "named")
register_converter(NumberConverter, "number")
register_converter(DecisionConverter, "decision")


class Router(SimpleRouter):
    """Routes without a trailing slash; viewsets may name several converters as their `lookup_path`.

    A list is named `{basename}s`, an object `{basename}`, an action by its own `url_name`.
    """

    routes = [
        Route(
            "{prefix}",
            {"get": "list", "post": "create"},
            "{basename}s",
            detail=False,
            initkwargs={},
        ),
        DynamicRoute("{prefix}/{url_path}", "{url_name}", detail=False, initkwargs={}),
        Route(
            "{prefix}/{lookup}",
            {
                "get": "retrieve",
                "put": "update",
                "patch": "partial_update",
                "delete": "destroy",
            },
            "{basename}",
            detail=True,
            initkwargs={},
        ),
        DynamicRoute(
            "{prefix}/{lookup}/{url_path}", "{url_name}", detail=True, initkwargs={}
        ),
    ]

    def __init__(self) -> None:
        super().__init__(trailing_slash=False, use_regex_path=False)

    def get_lookup_regex(self, viewset: Any, lookup_prefix: str = "") -> str:
        return str(viewset.lookup_path)


def labels_of(view: object) -> LabelsOf | None:
    """Return what finds the labels of the object of a viewset; None where roles by label do not apply."""
    of: LabelsOf | None = getattr(view, "labels_of", None)
    return of


class UserPermission(BasePermission):
    """What a user may do anywhere or nowhere: `is_allowed` decides by the user alone."""

    is_allowed: Callable[[Any], bool]

    def has_permission(self, request: Request, view: Any) -> bool:
        return self.is_allowed(request.user)


class MayRead(UserPermission):
    """Every role may call it: nothing is saved."""

    message = (
        "Reading requires one of the roles viewer, operator, approver, "
        "cluster-administrator."
    )
    is_allowed = staticmethod(may_read)


class MayReadOrOperate(BasePermission):
    """Every role reads, an operator writes."""

    message = (
        "Reading requires one of the roles viewer, operator, approver, cluster-administrator; "
        "changing requires the role operator, for everything or for the label of the object."
    )

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.method in SAFE_METHODS:
            return may_read(request.user)
        return may_change_at(request.user, labels_of(view), view.kwargs, Role.OPERATOR)


class MayAct(BasePermission):
    """Everyone with the role of an action runs it, for everything or for the label of the object."""

    def __init__(self, action: Action) -> None:
        self.action, self.message = action, action.denial

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.method in SAFE_METHODS:
            return may_read(request.user)
        return may_change_at(
            request.user, self.action.labels_at, view.kwargs, self.action.role
        )


_GROUPS = {ActionKind.ROLLING: "rollout ", ActionKind.STAGED: "staged "}


def command_of(action: Action, **body: Any) -> dict[str, Any]:
    """Return the command of an action, its message and the fields of the body that it sets."""
    group = "" if action.has_form else _GROUPS.get(action.kind, "")
    return {
        "words": f"{group}{action.name}",
        "message": action.message,
        "body": body,
    }


def route_of(action: Action) -> dict[str, Any]:
    """Return how the operation for an action is routed: with the permission of the action."""
    return {"permission_classes": [partial(MayAct, action)]}


class MayAdministerClusters(UserPermission):
    message = "Connections of clusters require the role cluster-administrator."
    is_allowed = staticmethod(may_administer_clusters)


class BaseViewSet(GenericViewSet[Any]):
    """A noun: its list, its objects and the actions on them.

    `model`, `not_found` and the keys of the path find an object; without `status`, an object is its
    manifest alone.
    """

    schema = Schema()
    _deposit = _started = 0.0
    permission_classes: Sequence[type[BasePermission]] = (MayReadOrOperate,)
    lookup_path = "<named:name>"
    model: type[Model]
    not_found: Callable[..., Exception]
    labels_of: LabelsOf | None = None
    """Finds the labels of the object by the arguments of the path, for users with roles by label."""
    dry_run_action = "update"
    """The action that supports `dryRun`; any other one would write in spite of it."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the request, and let a live hub respond to what it decides.

        Raise ValidationError for a dry run of an action that has none, HubDecidesError.
        """
        super().initial(request, *args, **kwargs)
        if current_hub_id() == UNKNOWN_HUB:
            raise Http404
        handler = current_backend().handler(self, request.method or "")
        if handler is not None:
            setattr(self, str(request.method).lower(), handler)
        dry_run = request.query_params.get("dryRun")
        operation = getattr(self, self.action or "", None)
        if getattr(operation, "is_costly", False) or dry_run is not None:
            self._deposit = reserve(
                request.user.pk, body_bytes=body_size(request._request)
            )
            self._started = time.thread_time()
        if dry_run is not None and request.method not in SAFE_METHODS:
            problem = ""
            if dry_run != "All":
                problem = "must be All"
            elif self.action != self.dry_run_action and handler is None:
                problem = "is not supported by this operation"
            if problem:
                raise ValidationError(
                    {"dryRun": [f"{problem}; nothing was changed"]},
                    code="not-supported",
                )
        if handler is None and getattr(operation, "query", None) is NoQuery:
            query_params(request)

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if self._deposit:
            settle(
                request.user.pk,
                deposit=self._deposit,
                used=time.thread_time() - self._started,
            )
        return super().finalize_response(request, response, *args, **kwargs)

    def permission_denied(
        self, request: Request, message: str | None = None, code: str | None = None
    ) -> Any:
        """Raise the response to a missing role; without one on a live hub nothing of it is to be known."""
        is_hidden = current_hub_id() != LOCAL_HUB and not may_read(request.user)
        if request.user.is_authenticated and (
            is_hidden or current_hub_id() == UNKNOWN_HUB
        ):
            raise Http404
        super().permission_denied(request, message, code)

    def get_parsers(self) -> list[BaseParser]:
        request: Request | None = getattr(self, "request", None)
        is_patch = request is not None and request.method == "PATCH"
        return (
            [parser() for parser in PATCH_PARSERS]
            if is_patch
            else super().get_parsers()
        )

    def get_queryset(self) -> QuerySet[Any]:
        return self.model._default_manager.all()

    def key(self) -> dict[str, Any]:
        return self.kwargs

    def get_object(self) -> Any:
        """Return the object that the path names. Raise `not_found`."""
        return first_or_raise(
            self.get_queryset().filter(**self.key()),
            type(self).not_found(*self.key().values()),
        )

    def manifest_and_status(self, row: Any) -> tuple[Any, dict[str, Any] | None]:
        """Return the manifest as it was applied, and its status where it has one."""
        return row.document, None

    def manifest_response(self, row: Any = None, *, status: int = 200) -> Response:
        """Respond with the manifest of an object and its entity tag."""
        row = row or self.get_object()
        manifest, state = self.manifest_and_status(row)
        manifest = manifest_for(self.request.user, manifest, name=str(row))
        document, version = read_manifest(row, manifest, state), row.revision
        if known := current_backend().metadata(manifest):
            document["metadata"] = {**document["metadata"], **known}
            version = known["resourceVersion"]
        return etag_response(
            self.request, document, etag(version, state), status=status
        )

    def check_document(self, document: Any) -> None:
        """Raise InvalidManifest unless the document has the name that the path has."""
        check_names(document, {"metadata.name": self.kwargs["name"]})

    def put_manifest(
        self,
        save: Callable[..., Any],
        *,
        query: type[Serializer[Any]] = DryRunQuery,
        **options: Any,
    ) -> Response:
        """Save the document of the body, and respond with it and with its warnings.

        With `dryRun` the response is the same, and nothing is written.
        """
        params = query_params(self.request, query)
        is_dry_run = "dryRun" in params
        if params.get("force"):
            message = "is for live hubs: the fields of this hub have no managers"
            raise ValidationError({"force": [message]}, code="not-supported")
        expected = expected_revision(
            self.request, exists=self.get_queryset().filter(**self.key()).exists()
        )
        with (
            transaction.atomic() if is_dry_run else nullcontext(),
            read_document(self.request) as body,
        ):
            document = self.patched(body)
            self.check_document(document)
            version = revision_in(document) if expected is None else None
            try:
                saved = save(
                    document,
                    **actor(self.request),
                    expected=version if expected is None else expected,
                    **options,
                )
            except RevisionConflict as error:
                if version is None:
                    raise
                raise StaleResourceVersion(error) from error
            response = self.manifest_response(
                status=201 if saved.result in ("created", "joined") else 200
            )
            if is_dry_run:
                transaction.set_rollback(True)
        # As in Kubernetes: warnings are headers, which are ASCII.
        warnings = getattr(saved, "warnings", ())[:_MOST_WARNINGS]
        texts = [
            " ".join(f"{warning.path}: {warning.message}".split())
            for warning in warnings
        ]
        quoted = [
            re.sub(r"[^ !#-\[\]-~]", "?", text[:_LONGEST_WARNING]) for text in texts
        ]
        if quoted:
            response.headers["Warning"] = ", ".join(
                f'299 fleetui "{one}"' for one in quoted
            )
        return response

    def patched(self, document: Any) -> Any:
        """Return the manifest that a request wants: its body, or the object with its merge patch."""
        if self.request.method != "PATCH":
            return document
        return merged(
            plain_manifest(self.get_object().document),
            object_in(document, what="a merge patch"),
        )


class FullNameViewSet(BaseViewSet):
    """A noun that may be namespaced: its path has `name` or `namespace:name`."""

    lookup_path = "<full_name:name>"

    def key(self) -> dict[str, Any]:
        return {"full_name": self.kwargs["name"]}

    def check_document(self, document: Any) -> None:
        """Raise InvalidManifest unless the document has the name and the namespace that the path has."""
        namespace = self.namespace()
        check_names(
            document,
            {"metadata.name": self.own_name(), "metadata.namespace": namespace},
        )
        check_namespace(document, namespace)

    def own_name(self) -> str:
        """Return the name that a document of the path has."""
        return split_full_name(self.kwargs["name"])[1]

    def namespace(self) -> str:
        """Return the namespace that a document of the path has, "" for one that is cluster-scoped."""
        return split_full_name(self.kwargs["name"])[0]


def paged_list(
    name: str,
    row: type[Serializer[Any]],
    *,
    query: type[Serializer[Any]] = PageQuery,
    order: str = "name",
    unique: str = "name",
    context: Callable[[Sequence[Any]], dict[str, Any]] = lambda _: {},
    **route: Any,
) -> Callable[[Callable[..., QuerySet[Any]]], Any]:
    """Describe an operation that responds with one page of the rows that the method returns.

    `context` looks something up for all rows of a page at once; `query` may have the order.
    The response raises ValidationError, BadCursorError.
    """

    def decorate(find: Callable[..., QuerySet[Any]]) -> Any:
        @wraps(find)
        def respond(view: BaseViewSet, request: Request, **key: Any) -> Response:
            params = query_params(request, query)
            size, after = params["limit"], params.get("after")
            page = page_of(
                find(view, params, **key),
                order=params.get("order", order),
                size=size,
                after=after,
                unique=unique,
            )
            items = row(
                page.rows, many=True, context={"request": request, **context(page.rows)}
            ).data
            return page_response(request, items, page.after)

        describe: Callable[..., Any] = (
            documented if find.__name__ == "list" else partial(operation, **route)
        )
        return describe(name, page_serializer(row), query=query)(respond)

    return decorate


def actor(request: Request) -> dict[str, Any]:
    """Return the arguments of every operation: the user and the time."""
    user = request.user
    # The command line of this machine acts as the system, whose row is not saved.
    is_person = isinstance(user, User) and user.pk is not None
    return {"by": user if is_person else None, "now": datetime.now(UTC)}


def check_names(document: object, names: Mapping[str, str]) -> None:
    """Raise InvalidManifest unless a document is an object with these names at these paths, or without."""
    if not isinstance(document, dict):
        raise InvalidManifest.of("", "wrong-type", "is not a manifest", "an object")
    errors = []
    for path, expected in names.items():
        value: Any = document
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str) and value != expected:
            errors.append(
                FieldError(
                    path,
                    "conflict",
                    f"{value[:63]!r} differs from the name in the address",
                    expected or "no value",
                )
            )
    raise_errors(errors)


def check_namespace(document: dict[str, Any], namespace: str) -> None:
    """Raise InvalidManifest where the path names a namespace and the document has none."""
    metadata = document.get("metadata")
    if namespace and isinstance(metadata, dict) and not metadata.get("namespace"):
        raise InvalidManifest.of(
            "metadata.namespace", "required", "is missing", namespace
        )


def query_params(
    request: Request, query: type[Serializer[Any]] = NoQuery
) -> dict[str, Any]:
    """Return the query parameters, checked and with their defaults. Raise ValidationError.

    An unknown parameter is an error: a misspelt filter must not return everything.
    """
    reader = query(data=request.query_params)
    if unknown := sorted(
        request.query_params.keys() - reader.fields.keys() - {"format"}
    ):
        message = f"is not a parameter of this address (parameters: {', '.join(reader.fields) or 'none'})"
        raise ValidationError(
            {name[:80]: [message] for name in unknown}, code="unknown-field"
        )
    reader.is_valid(raise_exception=True)
    return dict(reader.validated_data)


def page_response(
    request: Request, items: Iterable[Any], after: str | int | None
) -> Response:
    following = None if after is None else next_page(request, after)
    return Response({"items": list(items), "next": following})


def next_page(request: Request, after: str | int) -> str:
    parameters = request.query_params.copy()
    parameters["after"] = str(after)
    return request.build_absolute_uri(f"{request.path}?{parameters.urlencode()}")
