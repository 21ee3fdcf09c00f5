"""One request that changes something on a hub, and the closed list of those that are offered (13.1)."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from clusters.drivers.kubernetes.client import APPLY_PATCH
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.secrets import canonical_json, without_secrets
from fleetui.errors import FleetError
from placements.hubs.kinds.base import StreamKind
from placements.hubs.kinds.kubefleet import STREAMS
from placements.hubs.write_bodies import check_body

JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
_EDITED = frozenset({"create", "apply", "patch", "delete"})
OFFERED: Mapping[str, frozenset[str]] = {
    "clusterresourceplacements": _EDITED,
    "resourceplacements": _EDITED,
    "clusterresourceoverrides": _EDITED,
    "resourceoverrides": _EDITED,
    "clusterresourceplacementdisruptionbudgets": _EDITED,
    "clusterstagedupdatestrategies": _EDITED,
    "stagedupdatestrategies": _EDITED,
    "clusterresourceplacementevictions": frozenset({"create", "delete"}),
    "clusterstagedupdateruns": frozenset({"create", "patch", "delete"}),
    "stagedupdateruns": frozenset({"create", "patch", "delete"}),
    "clusterapprovalrequests": frozenset({"approve"}),
    "approvalrequests": frozenset({"approve"}),
    "memberclusters": frozenset({"patch"}),
}
"""What is offered by plural; everything else, such as snapshots, bindings and Works, is never written."""
KINDS: Mapping[str, StreamKind] = {
    one.kind: one for one in STREAMS if one.plural in OFFERED
}


def kind_of(name: str, namespace: str) -> str:
    """Return the kind of this name in a namespace, or its cluster-scoped sibling."""
    sibling = f"Cluster{name}"
    if namespace or sibling not in KINDS:
        return name
    return sibling


class Verb(StrEnum):
    """How a request changes an object; `apply` with the part `status` approves."""

    CREATE = "create"
    APPLY = "apply"
    PATCH = "patch"
    DELETE = "delete"

    @property
    def permission(self) -> str:
        """The verb of RBAC: an apply is a patch."""
        return "patch" if self is Verb.APPLY else str(self)


class NotOfferedError(FleetError, ValueError):
    """The console never sends such a request."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    problem_type = "not-offered"


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write as it is sent, with or without a dry run; its digest decides whether both are the same.

    `uid` and `resource_version` are the preconditions, "" for a creation. `is_forced` takes the fields of the
    body from their owners.
    """

    verb: Verb
    kind: StreamKind
    version: str
    name: str
    body: Mapping[str, Any]
    namespace: str = ""
    subresource: str = ""
    is_forced: bool = False
    uid: str = ""
    resource_version: str = ""

    def __post_init__(self) -> None:
        """Raise NotOfferedError, ForbiddenBodyError."""
        verb = str(self.verb)
        if self.subresource:
            sent = f"{self.verb} {self.subresource}"
            verb = "approve" if sent == "apply status" else sent
        if verb not in OFFERED.get(self.kind.plural, frozenset()):
            raise NotOfferedError(f"{verb} {self.kind.resource} is not offered")
        if self.verb is not Verb.DELETE:
            check_body(self.body, subresource=self.subresource)
        is_named = bool(self.uid and self.resource_version)
        if self.verb is not Verb.CREATE and not is_named:
            raise NotOfferedError(
                "a write to an object names its uid and its resourceVersion"
            )

    @property
    def method(self) -> str:
        return {Verb.CREATE: "POST", Verb.DELETE: "DELETE"}.get(self.verb, "PATCH")

    @property
    def content_type(self) -> str:
        return {Verb.APPLY: APPLY_PATCH, Verb.PATCH: MERGE_PATCH}.get(self.verb, JSON)

    @property
    def path(self) -> str:
        if self.verb is Verb.CREATE:
            return self.kind.path(self.version, self.namespace)
        return f"{self.object_path}/{self.subresource}".removesuffix("/")

    @property
    def object_path(self) -> str:
        return f"{self.kind.path(self.version, self.namespace)}/{self.name}"

    def query(self, manager: str, *, is_dry_run: bool) -> dict[str, str]:
        query: dict[str, str] = {}
        if self.verb is not Verb.DELETE:
            query = {"fieldManager": manager, "fieldValidation": "Strict"}
        if self.verb is Verb.APPLY and self.is_forced:
            query["force"] = "true"
        return {**query, "dryRun": "All"} if is_dry_run else query

    def content(self, *, is_dry_run: bool) -> Mapping[str, Any]:
        """Return the body as it is sent: of a DELETE with a body, API servers ignore the query."""
        if self.verb is Verb.DELETE and is_dry_run:
            return {**self.body, "dryRun": ["All"]}
        return self.body

    @property
    def digest(self) -> str:
        """Identify what is sent, apart from the resourceVersion: each status of a controller is a new one."""
        body = self.at_version("0").body if self.resource_version else self.body
        sent = [self.method, self.path, self.content_type, self.is_forced, body]
        return hashlib.sha256(canonical_json(sent)).hexdigest()

    @property
    def written_conditions(self) -> tuple[str, ...]:
        """The types of the conditions that the body has."""
        conditions = map(mapping_at, items_at(self.body, "status", "conditions"))
        return tuple(str(one.get("type")) for one in conditions)

    def at_version(self, resource_version: str) -> "WriteRequest":
        """Return the same request with another precondition."""
        part = "preconditions" if self.verb is Verb.DELETE else "metadata"
        inner = {**mapping_at(self.body, part), "resourceVersion": resource_version}
        return replace(
            self, body={**self.body, part: inner}, resource_version=resource_version
        )

    @property
    def stored_body(self) -> dict[str, Any]:
        # The kind says which values are secret.
        body: dict[str, Any] = without_secrets({**self.body, "kind": self.kind.kind})
        if "kind" not in self.body:
            del body["kind"]
        return body

    def forced(self) -> "WriteRequest":
        return replace(self, is_forced=True)

    def hidden_texts(self) -> list[str]:
        """Return the secret values of the body, the longest first: a message of the hub may quote them."""
        hidden = set(_texts(self.body)) - set(_texts(self.stored_body))
        return sorted({text for _, text in hidden if text}, key=len, reverse=True)


def _texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, str]]:
    """Yield all values that are neither objects nor lists, each with its path."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        yield path, str(value)
    for key, inner in items:
        yield from _texts(inner, (*path, key))
