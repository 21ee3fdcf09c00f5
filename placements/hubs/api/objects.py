"""Objects of a live hub under the paths of the local one: `PUT`, `PATCH` and `DELETE` become writes to it.

They are the actions of `hubs/NAME/writes`: the same roles, the same dry run before, the same records.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.hub_queries import live_hubs
from clusters.models import Hub
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.secrets import without_secrets
from fleetui.hub_scope import current_hub_id
from placements.api.base import BaseViewSet, Params, actor, query_params
from placements.api.disruption import ClusterRefSerializer
from placements.api.filters import DeleteQuery, PutObjectQuery, PutPlacementQuery
from placements.api.parsers import check_objects, object_in, parse_body, read_document
from placements.api.preconditions import PreconditionError, expected_revision
from placements.hubs.abilities import (
    LOCAL_READS,
    SAME_IN_REST,
    refusal_of_operation,
)
from placements.hubs.kinds.kubefleet import PREFIX
from placements.hubs.queries import mirrored_object
from placements.hubs.write_requests import KINDS, StaleBaseError, Verb
from placements.hubs.writing.answers import WriteAnswer
from placements.hubs.writing.catalogue import ACTIONS
from placements.hubs.writing.operations import (
    AppliedWrite,
    HubRefusedError,
    WritePreview,
    apply_write,
    preview_write,
)
from placements.services.results import get_placement

WRITE_HEADER = "X-FleetUI-Hub-Write"
_MOST_NOTES, _LONGEST_NOTE = 10, 300
# A finalizer keeps a deleted object for a while.
_STATUS: Mapping[Verb | None, int] = {Verb.CREATE: 201, Verb.DELETE: 202}


def mirrored_metadata(kind: str, namespace: str, name: str) -> Mapping[str, Any]:
    """Return the metadata of an object as the mirror has it; empty without it."""
    if kind not in KINDS:
        return {}
    hub = live_hubs().get(pk=current_hub_id())
    manifest: Any = mirrored_object(hub, KINDS[kind].group, kind, namespace, name) or {}
    return dict(manifest.get("metadata") or {})


def execute(
    request: Request,
    hub: Hub,
    action: str,
    fields: Mapping[str, Any],
    params: Params,
) -> WritePreview | AppliedWrite | None:
    """Preview an action by a dry run of the hub, or have it sent after one; None where nothing changes.

    Raise what `apply_write` raises, HubRefusedError for a preview too.
    """
    forced = [part.strip() for part in params.get("force", "").split(",")]
    arguments: dict[str, Any] = {
        **actor(request),
        "overwrite": list(filter(None, forced)),
    }
    if "dryRun" not in params:
        return apply_write(
            hub, ACTIONS[action], fields, confirmed="confirm" in params, **arguments
        )
    preview = preview_write(hub, ACTIONS[action], fields, **arguments)
    if preview.answer and not preview.answer.is_accepted:
        raise HubRefusedError(preview.answer)
    return preview


def response_to_sent(done: AppliedWrite) -> Response:
    """Respond with the object as the hub has it; the outcome may be unknown."""
    headers = {WRITE_HEADER: str(done.row.pk)}
    if done.is_unknown:
        outcome = {"state": done.row.state, "answer": done.row.answer}
        return Response(outcome, status=202, headers=headers)
    result = done.result or {"state": done.row.state}
    return Response(result, status=201, headers=headers)


def write_object(
    request: Request,
    action: str,
    fields: Mapping[str, Any],
    *,
    params: Params,
) -> Response:
    """Preview an action on the live hub in scope, or have it sent; respond with the object.

    `If-Match` holds for the resourceVersion of the hub. Raise what `apply_write` raises, PreconditionError.
    """
    if actor(request)["by"] is None:
        raise TypeError("a write requires a user")
    hub = live_hubs().get(pk=current_hub_id())
    wanted = dict(fields)
    version = expected_revision(request)
    if version is not None:
        wanted["resourceVersion"] = str(version)
    try:
        done = execute(request, hub, action, wanted, params)
    except StaleBaseError as error:
        if version is None:
            raise
        raise PreconditionError(str(error)) from error
    if done is None:
        return Response(status=204)
    if done.answer is None:  # nothing would change
        live = done.plan.live
        return Response(without_secrets(dict(live)) if live else None)
    if isinstance(done, AppliedWrite) and done.is_unknown:
        return response_to_sent(done)
    return response_as_local(done, done.answer)


def response_as_local(
    done: WritePreview | AppliedWrite, answer: WriteAnswer
) -> Response:
    """Respond as for the same object of the local hub, with the notes as warnings."""
    headers, result = {}, done.result
    if isinstance(done, AppliedWrite):
        headers[WRITE_HEADER] = str(done.row.pk)
    texts = [
        note[:_LONGEST_NOTE].encode("ascii", "replace").decode().replace('"', "'")
        for note in done.plan.notes[:_MOST_NOTES]
    ]
    if texts:
        headers["Warning"] = ", ".join(f'299 fleetui "{text}"' for text in texts)
    verb = done.plan.request.verb if done.plan.request else None
    if verb is Verb.DELETE and "deletionTimestamp" not in mapping_at(
        result, "metadata"
    ):
        return Response(status=204, headers=headers)
    if answer.resource_version and verb is not Verb.DELETE:
        headers["ETag"] = f'"{answer.resource_version}"'
    return Response(result, status=_STATUS.get(verb, 200), headers=headers)


def save(view: BaseViewSet, request: Request, **_key: Any) -> Response:
    """Create or edit an object; what changed since it was read is kept.

    The body of a PATCH is what the object of the hub gets, not the one of the mirror.
    """
    is_placement = _name_of(view) in ("placement", "preview")
    params = query_params(
        request, PutPlacementQuery if is_placement else PutObjectQuery
    )
    with read_document(request) as body:
        document = view.patched(body)
        view.check_document(document)
    fields: dict[str, Any] = {"manifest": document}
    row = view.get_queryset().filter(**view.key()).first()
    if row is not None:
        fields["base"] = row.document
    if request.method == "PATCH":
        fields["patch"] = body
    metadata = object_in(document, what="a manifest").get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    fields |= {
        key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)
    }
    response = write_object(request, "save", fields, params=params)
    return view.manifest_response(row) if response.status_code == 204 else response


def delete(view: BaseViewSet, request: Request, **_key: Any) -> Response:
    document = view.get_object().document
    metadata = document["metadata"]
    fields = {"kind": document["kind"], "name": metadata["name"]}
    if metadata.get("namespace"):
        fields["namespace"] = metadata["namespace"]
    return write_object(
        request, "delete", fields, params=query_params(request, DeleteQuery)
    )


def act(
    action: str, _view: BaseViewSet, request: Request, name: str, **fields: Any
) -> Response:
    return write_object(
        request, action, {"name": name, **fields}, params=query_params(request)
    )


def put_labels(view: BaseViewSet, request: Request, name: str) -> Response:
    """Replace the labels of a cluster; those of the hub itself stay."""
    before = view.get_object().document["metadata"].get("labels") or {}
    with read_document(request) as document:
        labels = object_in(document, what="an object of labels")
    removed = {
        key: None for key in before if key not in labels and not key.startswith(PREFIX)
    }
    return act("labels", view, request, name, labels={**labels, **removed})


def patch_labels(view: BaseViewSet, request: Request, name: str) -> Response:
    with read_document(request) as document:
        patch = object_in(document, what="a merge patch of labels")
    return act("labels", view, request, name, labels=patch)


def put_taints(view: BaseViewSet, request: Request, name: str) -> Response:
    with read_document(request) as taints:
        check_objects(taints, what="a list of taints")
    return act("taints", view, request, name, taints=taints)


def evict(_view: BaseViewSet, request: Request, name: str) -> Response:
    get_placement(name)
    fields = {
        "placement": name,
        "cluster": parse_body(request, ClusterRefSerializer)["cluster"],
    }
    return write_object(request, "evict", fields, params=query_params(request))


HANDLERS: Mapping[str, Callable[..., Response]] = {
    "PUT placement": save,
    "PATCH placement": save,
    "DELETE placement": delete,
    "PUT preview": save,
    "DELETE preview": delete,
    "PUT override": save,
    "PATCH override": save,
    "DELETE override": delete,
    "PUT budget": save,
    "DELETE budget": delete,
    "PUT staged-strategy": save,
    "PATCH staged-strategy": save,
    "DELETE staged-strategy": delete,
    "POST cordon": partial(act, "cordon"),
    "POST uncordon": partial(act, "uncordon"),
    "PUT labels": put_labels,
    "PATCH labels": patch_labels,
    "PUT taints": put_taints,
    "POST evict": evict,
}
"""What writes to the hub under the paths of this console, by method and name of the address."""


def _name_of(view: BaseViewSet) -> str:
    return str(getattr(view.request.resolver_match, "view_name", "")).rpartition(":")[2]


def handler_of(view: BaseViewSet, method: str) -> Callable[..., Response] | None:
    """Return what responds on a live hub; None where the view does. Raise HubDecidesError."""
    name = _name_of(view)
    operation = f"{method} {name}"
    is_reading = method in SAFE_METHODS and name not in LOCAL_READS
    if is_reading or operation in SAME_IN_REST:
        return None
    if operation not in HANDLERS:
        raise refusal_of_operation(name)
    return partial(HANDLERS[operation], view)
