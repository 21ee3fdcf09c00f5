"""Objects of a live hub under the paths of the local one: `PUT`, `PATCH` and `DELETE` become writes to it.

They are the actions of `hubs/NAME/writes`: the same roles, the same dry run before, the same records.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.hubs.queries import live_hubs, mirrored_object
from clusters.hubs.writing.answers import WriteAnswer
from clusters.hubs.writing.bodies import StaleBaseError
from clusters.hubs.writing.requests import KINDS, Verb
from fleetui.apimachinery.secrets import without_secrets
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from placements.api.preconditions import PreconditionError, expected_revision
from placements.services.hub_writes.catalogue import ACTIONS
from placements.services.hub_writes.operations import (
    AppliedWrite,
    HubRefusedError,
    WritePreview,
    apply_write,
    preview_write,
)

WRITE_HEADER = "X-FleetUI-Hub-Write"
DRY_RUNS = frozenset({"update", "partial_update", "destroy", "put_budget", "delete_budget"})
"""Actions of viewsets that a live hub can try by a dry run."""
_MOST_NOTES, _LONGEST_NOTE = 10, 300


def is_on_live_hub() -> bool:
    return current_hub_id() != LOCAL_HUB


def mirrored_metadata(kind: str, namespace: str, name: str) -> Mapping[str, Any]:
    """Return the metadata of an object as the mirror has it; empty without it."""
    if kind not in KINDS:
        return {}
    hub = live_hubs().get(pk=current_hub_id())
    manifest: Any = mirrored_object(hub, KINDS[kind].group, kind, namespace, name) or {}
    return dict(manifest.get("metadata") or {})


def forced_paths(params: Mapping[str, Any]) -> list[str]:
    return [one.strip() for one in params.get("force", "").split(",") if one.strip()]


def write_object(
    request: Request,
    action: str,
    fields: Mapping[str, Any],
    *,
    params: Mapping[str, Any],
    by: User | None,
    now: datetime,
) -> Response:
    """Preview an action on the live hub in scope, or have it sent; respond with the object.

    `If-Match` holds for the resourceVersion of the hub. Raise what `apply_write` raises, PreconditionError.
    """
    if by is None:
        raise TypeError("a write requires a user")
    hub = live_hubs().get(pk=current_hub_id())
    wanted = dict(fields)
    version = expected_revision(request)
    if version is not None:
        wanted["resourceVersion"] = str(version)
    arguments: dict[str, Any] = {"by": by, "now": now, "overwrite": forced_paths(params)}
    try:
        if "dryRun" in params:
            preview = preview_write(hub, ACTIONS[action], wanted, **arguments)
            if preview.answer is None:  # nothing would change
                return Response(without_secrets(dict(preview.plan.live)) if preview.plan.live else None)
            if not preview.answer.is_accepted:
                raise HubRefusedError(preview.answer)
            return _response(preview, preview.answer, {})
        done = apply_write(hub, ACTIONS[action], wanted, confirmed="confirm" in params, **arguments)
    except StaleBaseError as error:
        if version is None:
            raise
        raise PreconditionError(str(error)) from error
    if done is None:
        return Response(status=204)
    headers = {WRITE_HEADER: str(done.row.pk)}
    if done.is_unknown:
        return Response({"state": done.row.state, "answer": done.row.answer}, status=202, headers=headers)
    return _response(done, done.answer, headers)


def _response(done: WritePreview | AppliedWrite, answer: WriteAnswer, headers: dict[str, str]) -> Response:
    """Respond as for the same object of the local hub, with the notes as warnings."""
    request, notes = done.plan.request, done.plan.notes[:_MOST_NOTES]
    if notes:
        texts = [one[:_LONGEST_NOTE].encode("ascii", "replace").decode().replace('"', "'") for one in notes]
        headers["Warning"] = ", ".join(f'299 fleetui "{one}"' for one in texts)
    if request is not None and request.verb is Verb.DELETE:
        # A finalizer keeps the object for a while.
        is_kept = bool(done.result and done.result.get("metadata", {}).get("deletionTimestamp"))
        return Response(done.result if is_kept else None, status=202 if is_kept else 204, headers=headers)
    if answer.resource_version:
        headers["ETag"] = f'"{answer.resource_version}"'
    is_new = request is not None and request.verb is Verb.CREATE
    return Response(done.result, status=201 if is_new else 200, headers=headers)
