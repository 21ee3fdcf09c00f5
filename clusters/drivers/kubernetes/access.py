"""Requests for single objects of a member cluster, and what its answers mean for them."""

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from clusters.drivers.base import DriverUnavailable, MemberIdentity, ObjectRef
from clusters.drivers.kubernetes.client import APPLY_PATCH, Response
from clusters.drivers.kubernetes.discovery import (
    ApiClient,
    Discovery,
    KindNotServedError,
    RefusedError,
    resolve_kind,
)
from fleetui.apimachinery.secrets import is_secret, secret_values

FIELD_MANAGER = "fleetui"
LONGEST_MESSAGE = 500
REMOVED_VALUE = "(redacted)"


@dataclass(frozen=True, slots=True)
class MemberAccess:
    """One member cluster: its client, the kinds it serves, and who this console and the member are.

    `warnings` collects what the API server warns of in one call, by object.
    """

    client: ApiClient
    discovery: Discovery
    identity: MemberIdentity
    monotonic: Callable[[], float]
    warnings: dict[ObjectRef, tuple[str, ...]] = field(default_factory=dict)

    @property
    def hub_id(self) -> str:
        return self.identity.hub_id

    def until(self, moment: float) -> Callable[[], float]:
        """Return a function that returns the seconds until a moment of the monotonic clock."""
        return lambda: moment - self.monotonic()


def read_object(
    access: MemberAccess, api_version: str, ref: ObjectRef, *, deadline: float
) -> Mapping[str, Any] | None:
    """Return a live object, or None when it does not exist.

    Raise KindNotServedError; RefusedError for any other error of the GET; DriverUnavailable.
    """
    answer = _get(access, api_version, ref, deadline=deadline)
    if answer is None:
        access.discovery.forget(ref.group)
        answer = _get(access, api_version, ref, deadline=deadline)
    if answer is None:
        raise KindNotServedError(f"the cluster serves no {ref.kind} in {api_version}")
    if answer.status == 200:
        return answer.body
    if answer.status == 404:
        return None
    raise RefusedError(
        "FailedToFindObjInMemberCluster", server_message(answer), status=answer.status
    )


def _get(
    access: MemberAccess, api_version: str, ref: ObjectRef, *, deadline: float
) -> Response | None:
    """Return the answer to a GET, or None where the path is not served although discovery has the kind."""
    resource = resolve_kind(access.discovery, api_version, ref, deadline=deadline)
    try:
        answer = access.client.request(
            "GET", resource.path(ref.namespace, ref.name), deadline=deadline
        )
    except DriverUnavailable as error:
        # Of a group that is no longer served, the server answers a 404 without a Status.
        if error.code not in ("not-kubernetes", "no-such-path") or "." not in ref.group:
            raise
        access.discovery.forget(ref.group)
        resolve_kind(access.discovery, api_version, ref, deadline=deadline)
        raise
    return None if is_path_missing(answer) else answer


def patch_object(
    access: MemberAccess,
    api_version: str,
    ref: ObjectRef,
    body: Mapping[str, Any],
    *,
    query: Mapping[str, str],
    content_type: str = APPLY_PATCH,
    deadline: float,
) -> Response:
    """Return the answer to a PATCH. Raise KindNotServedError, DriverUnavailable."""
    if content_type == APPLY_PATCH:  # the body names the version
        resource = access.discovery.resource(api_version, ref.kind, deadline=deadline)
    else:
        resource = resolve_kind(access.discovery, api_version, ref, deadline=deadline)
    path = resource.path(ref.namespace, ref.name)
    answer = access.client.request(
        "PATCH",
        path,
        query=query,
        body=body,
        content_type=content_type,
        deadline=deadline,
    )
    if is_path_missing(answer):
        access.discovery.forget(ref.group)
        raise KindNotServedError(f"the cluster serves no {ref.kind} in {api_version}")
    manifest = body if content_type == APPLY_PATCH else {}
    access.warnings[ref] = tuple(
        without_secret_values(one, manifest) for one in answer.warnings
    )
    return answer


def delete_object(
    access: MemberAccess, api_version: str, ref: ObjectRef, *, uid: str, deadline: float
) -> Response:
    """Return the answer to a DELETE of exactly this object, with its dependents in the background."""
    resource = resolve_kind(access.discovery, api_version, ref, deadline=deadline)
    body = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
    }
    path = resource.path(ref.namespace, ref.name)
    answer = access.client.request("DELETE", path, body=body, deadline=deadline)
    access.warnings[ref] = answer.warnings
    return answer


def is_path_missing(answer: Response) -> bool:
    """Return whether a 404 is about the path, not about an object: its details name none."""
    return answer.status == 404 and not (answer.body.get("details") or {}).get("name")


def is_cut_off(error: DriverUnavailable, access: MemberAccess, stop: float) -> bool:
    """Return whether a request failed only because the time for objects was used up."""
    return error.code == "timeout" and access.monotonic() >= stop - 0.05


def causes_of(answer: Response, reason: str) -> list[Mapping[str, Any]]:
    causes = (answer.body.get("details") or {}).get("causes") or ()
    return [one for one in causes if one.get("reason") == reason]


def server_message(answer: Response, manifest: Mapping[str, Any] | None = None) -> str:
    """Return the message of a Status, cut, without the values of the manifest if that is a Secret."""
    message = str(
        answer.body.get("message") or f"the API server answered {answer.status}"
    )
    return cut_message(without_secret_values(message, manifest or {}))


def cut_message(message: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return a message of at most so many characters, without its middle: the reason is often at the end."""
    if len(message) <= longest:
        return message
    kept = (longest - 3) // 2
    return f"{message[:kept]} … {message[-kept:]}"


def without_secret_values(message: str, manifest: Mapping[str, Any]) -> str:
    """Return a message without the values of a Secret: plain, base64, and as they are in a quoted message."""
    forms = set[str]()
    for text in secret_values(manifest) if is_secret(manifest) else ():
        forms |= {text, base64.b64encode(text.encode()).decode()}
        with suppress(ValueError):
            forms.add(base64.b64decode(text, validate=True).decode())
    forms |= {json.dumps(form)[1:-1] for form in forms}
    # The longest first: a value can be part of another.
    for form in sorted(forms - {""}, key=len, reverse=True):
        message = message.replace(form, REMOVED_VALUE)
    return message
