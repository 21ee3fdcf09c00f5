"""In whose name a write is sent, and whether the hub lets that account write (13.5)."""

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from clusters.models import Hub
from clusters.models.hubs import HubIdentity
from placements.hubs.kinds.base import StreamKind
from placements.hubs.write_requests import Verb, WriteRequest

REFUSAL_SECONDS = 60.0
MOST_REFUSALS = 2_000
SYSTEM = "system:"
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
        if not self.user:
            return {}
        return {"Impersonate-User": self.user, "Impersonate-Group": self.groups}


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


class RefusalCache:
    """What hubs forbade within the last minute, with its reason; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: OrderedDict[Hashable, tuple[float, str]] = OrderedDict()

    def get(self, key: Hashable) -> str:
        with self._lock:
            until, reason = self._reasons.get(key, (0.0, ""))
        if until <= time.monotonic():
            return ""
        return reason

    def put(self, key: Hashable, reason: str) -> None:
        with self._lock:
            self._reasons[key] = (time.monotonic() + REFUSAL_SECONDS, reason)
            self._reasons.move_to_end(key)
            while len(self._reasons) > MOST_REFUSALS:
                self._reasons.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._reasons.clear()


refusals = RefusalCache()


@dataclass(frozen=True, slots=True)
class HubAccess:
    """What a write needs of the account; no name where the object is to be created."""

    verb: str
    kind: StreamKind
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, request: WriteRequest) -> "HubAccess":
        name = "" if request.verb is Verb.CREATE else request.name
        verb = request.verb.permission
        return cls(verb, request.kind, request.subresource, request.namespace, name)

    def key(self, hub: Hub, requester: Requester) -> Hashable:
        """Return where a refusal is kept: another server or identity may do other things."""
        server = str(hub.connection.get("server"))
        return (hub.pk, server, requester.user, requester.groups, self)

    def lacking(self, requester: Requester) -> str:
        who = requester.user or "the account of the console"
        part = ""
        if self.subresource:
            part = f"/{self.subresource}"
        resource = f"{self.kind.plural}{part}.{self.kind.group}"
        return f"On the hub, {who} may not {self.verb} {resource}."
