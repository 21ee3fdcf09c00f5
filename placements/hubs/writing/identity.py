"""In whose name a write is sent, and whether the hub lets that account write (13.5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from django.core.cache import caches

from clusters.models import Hub
from clusters.models.hubs import HubIdentity
from fleetui.apimachinery.secrets import canonical_json
from placements.hubs.kinds.base import StreamKind
from placements.hubs.write_requests import Verb, WriteRequest

REFUSAL_SECONDS = 60
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


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """What a write needs of the account; no name where the object is to be created."""

    verb: str
    kind: StreamKind
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, request: WriteRequest) -> "WriteAccess":
        name = "" if request.verb is Verb.CREATE else request.name
        verb = request.verb.permission
        return cls(verb, request.kind, request.subresource, request.namespace, name)

    def key(self, hub: Hub, requester: Requester) -> str:
        """Return where a refusal is kept: another server or identity may do other things."""
        server, who = str(hub.connection.get("server")), requester
        what = [self.verb, self.kind.plural, self.subresource, self.namespace]
        parts = [hub.pk, server, who.user, *who.groups, "", *what, self.name]
        return f"hub-refusal-{sha256(canonical_json(parts)).hexdigest()}"

    def refusal(self, hub: Hub, requester: Requester) -> str:
        """Return what the hub forbade within the last minute, "" where it did not."""
        return str(caches["process"].get(self.key(hub, requester), ""))

    def note_refusal(self, hub: Hub, requester: Requester) -> None:
        key = self.key(hub, requester)
        caches["process"].set(key, self.lacking(requester), REFUSAL_SECONDS)

    def lacking(self, requester: Requester) -> str:
        who = requester.user or "the account of the console"
        part = f"{self.kind.plural}/{self.subresource}".removesuffix("/")
        return f"On the hub, {who} may not {self.verb} {part}.{self.kind.group}."
