"""In whose name a write is sent, and whether the hub lets that account write (13.5)."""

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusters.drivers.kubernetes.client import Client
from clusters.models import Hub
from clusters.models.hubs import HubIdentity
from placements.hubs.kinds.base import StreamKind, mapping_at
from placements.hubs.write_requests import WriteRequest

REVIEW_SECONDS = 60.0
MOST_REVIEWS = 2_000
_REVIEWS = "/apis/authorization.k8s.io/v1"
SYSTEM = "system:"
AUTHENTICATED = "system:authenticated"
"""A group that API servers add to each impersonated user, and a review does not."""
Headers = Mapping[str, str | tuple[str, ...]]


class IdentityRefusedError(Exception):
    """A person cannot be impersonated on this hub."""


@dataclass(frozen=True, slots=True)
class Requester:
    """The account that the hub sees: that of the console, or a person with groups."""

    person: str
    user: str = ""
    groups: tuple[str, ...] = ()

    @property
    def headers(self) -> Headers:
        return (
            {"Impersonate-User": self.user, "Impersonate-Group": self.groups}
            if self.user
            else {}
        )


def requester_on(hub: Hub, person: str, role: str) -> Requester:
    """Return the account that a person's writes are sent as. Raise IdentityRefusedError.

    Without a prefix, or with one of the hub itself, a name of this console could be that of an administrator.
    """
    if hub.identity != HubIdentity.IMPERSONATE:
        return Requester(person)
    if not hub.user_prefix or not hub.group_prefix:
        raise IdentityRefusedError(
            "impersonation requires a prefix of users and of groups"
        )
    user = f"{hub.user_prefix}{person}"
    groups = (f"{hub.group_prefix}{role}", *map(str, hub.extra_groups))
    for text in (user, *groups):
        if text.lower().startswith(SYSTEM):
            raise IdentityRefusedError(
                f"{text[:80]!r} starts with {SYSTEM}, which belongs to the hub"
            )
        if not text.isascii() or not text.isprintable():
            raise IdentityRefusedError(
                f"{text[:80]!r} has characters that a header cannot have"
            )
    return Requester(person, user, groups)


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether the hub allows a write; `reason` says who lacks which verb on what."""

    is_allowed: bool
    reason: str = ""


class ReviewCache:
    """The access reviews of the last minute; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._permissions: OrderedDict[tuple[object, ...], tuple[float, Permission]] = (
            OrderedDict()
        )

    def get(self, key: tuple[object, ...]) -> Permission | None:
        with self._lock:
            until, permission = self._permissions.get(key, (0.0, None))
            return permission if permission and until > time.monotonic() else None

    def put(self, key: tuple[object, ...], permission: Permission) -> None:
        with self._lock:
            self._permissions[key] = (time.monotonic() + REVIEW_SECONDS, permission)
            self._permissions.move_to_end(key)
            while len(self._permissions) > MOST_REVIEWS:
                self._permissions.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._permissions.clear()


reviews = ReviewCache()


@dataclass(frozen=True, slots=True)
class HubAccessCheck:
    """What an access review is about; no name where the object is to be created."""

    verb: str
    kind: StreamKind
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        return {
            "verb": self.verb,
            "group": self.kind.group,
            "resource": self.kind.plural,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": self.name,
        }

    def key(self, hub: Hub, requester: Requester) -> tuple[object, ...]:
        """Return where a review is kept: another server, credential or identity has another review."""
        server = str(hub.connection.get("server"))
        return (
            hub.pk,
            server,
            requester.user,
            requester.groups,
            *self.attributes.values(),
        )

    def lacking(self, who: str) -> str:
        part = f"/{self.subresource}" if self.subresource else ""
        return f"On the hub, {who} may not {self.verb} {self.kind.plural}{part}.{self.kind.group}."


def account_of(requester: Requester) -> str:
    return requester.user or "the account of the console"


def review(
    client: Client,
    hub: Hub,
    requester: Requester,
    request: WriteRequest,
    *,
    deadline: float,
) -> Permission:
    """Return whether the hub would allow a write, at most a minute old. Raise DriverUnavailable."""
    name = "" if request.method == "POST" else request.name
    access = HubAccessCheck(
        request.verb.permission,
        request.kind,
        request.subresource,
        request.namespace,
        name,
    )
    key = access.key(hub, requester)
    if permission := reviews.get(key):
        return permission
    spec: dict[str, Any] = {"resourceAttributes": access.attributes}
    kind = "SelfSubjectAccessReview"
    if requester.user:
        kind, spec = (
            "SubjectAccessReview",
            {
                **spec,
                "user": requester.user,
                "groups": [*requester.groups, AUTHENTICATED],
            },
        )
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = client.request(
        "POST", f"{_REVIEWS}/{kind.lower()}s", body=body, deadline=deadline
    )
    if answer.status != 201:
        permission = Permission(
            True, f"The hub does not say what {account_of(requester)} may do."
        )
    elif mapping_at(answer.body, "status").get("allowed") is True:
        permission = Permission(True)
    else:
        permission = Permission(False, access.lacking(account_of(requester)))
    reviews.put(key, permission)
    return permission
