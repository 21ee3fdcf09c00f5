"""One request that changes something on a hub, and the closed list of those that are offered (13.1)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from clusters.drivers.kubernetes.client import APPLY_PATCH
from fleetui.apimachinery.secrets import canonical_json, without_secrets
from fleetui.errors import FleetError
from placements.hubs.kinds.base import StreamKind, items_at, mapping_at
from placements.hubs.kinds.kubefleet import STREAMS
from placements.hubs.write_bodies import check_body

JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
LARGEST_BODY = 1_500_000
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


class WriteTooLargeError(ValueError):
    """The body is larger than a hub takes."""


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
        """Raise NotOfferedError, ForbiddenBodyError, WriteTooLargeError."""
        verb = (
            "approve"
            if self.subresource == "status" and self.verb is Verb.APPLY
            else str(self.verb)
        )
        if verb not in OFFERED.get(self.kind.plural, frozenset()) or (
            self.subresource and verb != "approve"
        ):
            raise NotOfferedError(f"{verb} {self.kind.resource} is not offered")
        if self.verb is not Verb.DELETE:
            check_body(self.body, subresource=self.subresource)
        if self.verb in (Verb.APPLY, Verb.DELETE, Verb.PATCH) and not (
            self.uid and self.resource_version
        ):
            raise NotOfferedError(
                "a write to an object names its uid and its resourceVersion"
            )
        if len(canonical_json(self.body)) > LARGEST_BODY:
            raise WriteTooLargeError(
                f"the body has more than {LARGEST_BODY:,} bytes: too large for the hub"
            )

    @property
    def method(self) -> str:
        return {Verb.CREATE: "POST", Verb.DELETE: "DELETE"}.get(self.verb, "PATCH")

    @property
    def content_type(self) -> str:
        return {Verb.APPLY: APPLY_PATCH, Verb.PATCH: MERGE_PATCH}.get(self.verb, JSON)

    @property
    def path(self) -> str:
        collection = self.kind.path(self.version, self.namespace)
        if self.verb is Verb.CREATE:
            return collection
        part = f"/{self.subresource}" if self.subresource else ""
        return f"{collection}/{self.name}{part}"

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
    def subject(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.kind} {place}{self.name}"

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
        body: dict[str, Any] = without_secrets({**self.body, "kind": self.kind.kind})
        return (
            body
            if "kind" in self.body
            else {key: one for key, one in body.items() if key != "kind"}
        )

    def forced(self) -> "WriteRequest":
        return replace(self, is_forced=True)

    def hidden_texts(self) -> list[str]:
        """Return the secret values of the body, the longest first: a message of the hub may quote them."""
        return sorted(set(_hidden(self.body, self.stored_body)), key=len, reverse=True)


def _hidden(value: Any, public: Any) -> list[str]:
    if isinstance(value, Mapping) and isinstance(public, Mapping):
        return [text for key in value for text in _hidden(value[key], public.get(key))]
    if (
        isinstance(value, list)
        and isinstance(public, list)
        and len(value) == len(public)
    ):
        return [
            text for pair in zip(value, public, strict=True) for text in _hidden(*pair)
        ]
    if value == public:
        return []
    if isinstance(value, (Mapping, list)):
        inner = value.values() if isinstance(value, Mapping) else value
        return [text for one in inner for text in _hidden(one, None)]
    return [str(value)] if str(value) else []
