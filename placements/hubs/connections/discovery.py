"""What a hub serves and allows, and the check of a connection: at most 20 requests and 15 seconds.

See `rules/live-hub.md#check-of-a-connection`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.check import (
    Access,
    CheckResult,
    CheckStep,
    ConnectionCheck,
    StepFailed,
)
from clusters.drivers.kubernetes.client import Client
from clusters.kubernetes_drivers import address_rules
from fleetui.apimachinery.model import items_at, mapping_at
from placements.hubs.connections.connection import open_hub_client
from placements.hubs.kinds.base import Form, HubApi, StreamKind, text_of
from placements.hubs.write_requests import OFFERED

READ_VERBS = ("list", "watch")
WRITE_VERBS = ("create", "patch", "delete")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OLDEST_MINOR = 20


@dataclass(frozen=True, slots=True)
class KindPermissions:
    """What the credentials may do with a kind; None where that is not known."""

    resource: str
    is_required: bool
    verbs: Mapping[str, bool | None]

    @property
    def document(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "isRequired": self.is_required,
            "verbs": dict(self.verbs),
        }


@dataclass(frozen=True, slots=True)
class HubDiscovery:
    """What a hub serves. `versions` has the version of each stream kind, the stored one where it is known.

    `unsuitable` says why the hub cannot be mirrored, "" if it can. `permissions` are empty where the hub does
    not say them completely.
    """

    server_version: str = ""
    groups: tuple[str, ...] = ()
    versions: Mapping[StreamKind, str] = field(default_factory=dict)
    unsuitable: str = ""
    permissions: tuple[KindPermissions, ...] = ()

    @property
    def absent(self) -> tuple[StreamKind, ...]:
        return tuple(kind for kind, version in self.versions.items() if not version)


class Unsuitable(Exception):
    """The server cannot be mirrored."""


def discover(
    api: HubApi,
    client: Client,
    *,
    seconds: float,
    monotonic: Callable[[], float],
) -> HubDiscovery:
    """Return what a hub serves. Raise DriverUnavailable."""
    deadline = monotonic() + seconds
    try:
        version = server_version(client, deadline=deadline)
        kinds = discover_kinds(
            api, client, version, deadline=deadline, reads_definitions=True
        )
        rules = read_rules(client, deadline=deadline)
        served = [kind for kind, each in kinds.versions.items() if each]
        return (
            kinds
            if rules is None
            else replace(kinds, permissions=permissions_in(rules, served))
        )
    except Unsuitable as error:
        return HubDiscovery(unsuitable=str(error))


def discover_kinds(
    api: HubApi,
    client: Client,
    version: str,
    *,
    deadline: float,
    reads_definitions: bool,
) -> HubDiscovery:
    """Return what a server of a version serves. Raise Unsuitable, DriverUnavailable.

    `reads_definitions`: read the stored version of each kind, with one small request each, where allowed.
    """
    groups = served_groups(client, deadline=deadline)
    if groups.keys().isdisjoint(api.groups):
        looked_for = ", ".join(api.groups)
        raise Unsuitable(
            f"the API groups of {api.title} are not served; looked for {looked_for}"
        )
    served = {
        (group, each): list(
            map(itemgetter("name"), _resources(client, group, each, deadline=deadline))
        )
        for group in api.groups
        for each in api.versions
        if each in groups.get(group, ())
    }
    versions: dict[StreamKind, str] = {}
    may_read = reads_definitions
    for kind in api.streams:
        candidates = [
            one
            for one in api.versions
            if kind.plural in served.get((kind.group, one), ())
        ]
        if not kind.group:
            candidates = ["v1"]
        elif may_read and candidates:
            stored = _stored_version(client, kind, deadline=deadline)
            may_read = stored is not None
            candidates = [stored] if stored else candidates
        versions[kind] = next(iter(candidates), "")
    versions |= dict(optional_kinds(api, client, groups, deadline=deadline))
    return HubDiscovery(version, tuple(sorted(groups)), versions)


def server_version(client: Client, *, deadline: float) -> str:
    """Return the version of the server. Raise Unsuitable, DriverUnavailable."""
    try:
        answer = client.request("GET", "/version", deadline=deadline)
    except DriverUnavailable as error:
        if error.code in ("not-kubernetes", "no-such-path"):
            raise Unsuitable(
                "the server answers, but not as a Kubernetes API server"
            ) from error
        raise
    if answer.status == 404:
        raise Unsuitable("the server answers, but not as a Kubernetes API server")
    version = text_of(answer.body.get("gitVersion"), longest=60)
    minor = "".join(filter(str.isdecimal, str(answer.body.get("minor", ""))[:4]))
    if minor and answer.body.get("major") == "1" and int(minor) < OLDEST_MINOR:
        raise Unsuitable(
            f"the server has version {version}; Kubernetes 1.{OLDEST_MINOR} or newer is needed"
        )
    return version if version.isprintable() else ""


def served_groups(client: Client, *, deadline: float) -> Mapping[str, tuple[str, ...]]:
    """Return the versions of each API group. Raise Unsuitable, DriverUnavailable."""
    answer = client.request("GET", "/apis", deadline=deadline)
    if answer.status != 200:
        raise Unsuitable(f"the server answers {answer.status} to discovery")
    return {
        text_of(group.get("name")): tuple(
            text_of(mapping_at(version).get("version"), longest=63)
            for version in items_at(group, "versions")
        )
        for group in items_at(answer.body, "groups")
        if isinstance(group, dict)
    }


def _resources(
    client: Client,
    group: str,
    version: str,
    *,
    deadline: float,
) -> Iterator[Mapping[str, Any]]:
    answer = client.request("GET", f"/apis/{group}/{version}", deadline=deadline)
    if answer.status == 200:
        yield from (
            resource
            for resource in items_at(answer.body, "resources")
            if isinstance(resource, dict) and "name" in resource
        )


def _stored_version(client: Client, kind: StreamKind, *, deadline: float) -> str | None:
    """Return the stored version of a kind; None where definitions may not be read, "" where it has none."""
    answer = client.request("GET", f"{DEFINITIONS}/{kind.resource}", deadline=deadline)
    if answer.status == 403:
        return None
    for version in items_at(answer.body, "spec", "versions"):
        if (
            mapping_at(version).get("storage") is True
            and mapping_at(version).get("served") is True
        ):
            return text_of(version.get("name"), longest=63)
    return ""


def optional_kinds(
    api: HubApi,
    client: Client,
    groups: Mapping[str, Sequence[str]],
    *,
    deadline: float,
) -> Iterator[tuple[StreamKind, str]]:
    """Yield the kinds of the optional groups that are served, which are mirrored as metadata."""
    for group in api.optional_groups:
        for version in groups.get(group, ())[:1]:
            for resource in _resources(client, group, version, deadline=deadline):
                plural, kind = (
                    text_of(resource["name"], longest=100),
                    text_of(resource.get("kind"), longest=100),
                )
                can_watch = {"list", "watch"} <= set(
                    map(str, items_at(resource, "verbs"))
                )
                if plural and kind and "/" not in plural and can_watch:
                    yield (
                        StreamKind(
                            group,
                            plural,
                            kind,
                            bool(resource.get("namespaced")),
                            Form.METADATA,
                        ),
                        version,
                    )


def read_rules(client: Client, *, deadline: float) -> list[Any] | None:
    """Return what the credentials may do; None where the hub does not say it completely."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    }
    answer = client.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        body=review,
        deadline=deadline,
    )
    status = mapping_at(answer.body, "status")
    if answer.status != 201 or status.get("incomplete"):
        return None
    return items_at(status, "resourceRules")


def permissions_in(
    rules: list[Any], kinds: Iterable[StreamKind]
) -> tuple[KindPermissions, ...]:
    """Return what rules allow with each kind; of approval requests, `patch` is that of their status."""
    permissions = {}
    for kind in kinds:
        verbs: dict[str, bool | None] = {
            verb: bool(allows(rules, verb, kind)) for verb in READ_VERBS
        }
        part = "/status" if "approve" in OFFERED.get(kind.plural, ()) else ""
        verbs |= {verb: allows(rules, verb, kind, part=part) for verb in WRITE_VERBS}
        permissions[kind.resource] = KindPermissions(
            kind.resource, kind.is_required, verbs
        )
    return tuple(permissions.values())


def allows(
    rules: list[Any],
    verb: str,
    kind: StreamKind,
    *,
    part: str = "",
) -> bool | None:
    """Return whether rules allow a verb on all objects of a kind; None where on some."""
    resources = {f"{kind.plural}{part}", f"*{part}", "*"}
    is_allowed: bool | None = False
    for rule in rules:
        names = [
            set(map(str, items_at(rule, key)))
            for key in ("verbs", "apiGroups", "resources")
        ]
        if (
            names[0] & {verb, "*"}
            and names[1] & {kind.group, "*"}
            and names[2] & resources
        ):
            if not items_at(rule, "resourceNames"):
                return True
            is_allowed = is_allowed if verb == "create" else None
    return is_allowed


CHECK_SECONDS = 15.0
_HINT = "Apply the manifest that manage.py connect_hub --rbac viewer prints"


@dataclass(frozen=True, slots=True)
class HubCheckReport(CheckResult):
    permissions: tuple[KindPermissions, ...] = ()
    server_version: str = ""

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [permission.document for permission in self.permissions]


class HubCheck(ConnectionCheck):
    """One check of a hub; it reads nothing but one object of each required kind."""

    def __init__(self, api: HubApi, client: Client) -> None:
        super().__init__(client, rules=address_rules())
        self._api = api
        self._version = ""
        self._discovery = HubDiscovery()
        self._permissions: tuple[KindPermissions, ...] = ()

    def report(self, *, seconds: float = CHECK_SECONDS) -> HubCheckReport:
        """Run the steps; no step raises."""
        steps = self.run(seconds=seconds)
        return HubCheckReport(
            steps, permissions=self._permissions, server_version=self._version
        )

    def read_version(self) -> str:
        try:
            self._version = server_version(self._client, deadline=self._deadline)
        except Unsuitable as error:
            raise StepFailed(str(error)) from error
        return self._version

    def check_permissions(self) -> Iterator[CheckStep]:
        """Yield discovery, permissions, and one list of each required kind."""
        for name, run in (
            ("discovery", self.check_discovery),
            ("permissions", self.check_access),
            ("list", self.check_lists),
        ):
            try:
                yield CheckStep(name, True, run())
            except StepFailed as error:
                yield CheckStep(name, False, error.message, error.hint)
                if name == "discovery":
                    yield CheckStep("permissions", None, "not run")
                    yield CheckStep("list", None, "not run")
                    return
            except DriverUnavailable as error:
                yield CheckStep(name, False, str(error))

    def check_discovery(self) -> str:
        try:
            self._discovery = discover_kinds(
                self._api,
                self._client,
                self._version,
                deadline=self._deadline,
                reads_definitions=False,
            )
        except (Unsuitable, DriverUnavailable) as error:
            raise StepFailed(
                str(error),
                "A fleet of Azure without a hub has no placement API"
                if isinstance(error, Unsuitable)
                else "",
            ) from error
        missing = [
            kind.resource
            for kind in self._api.required
            if not self._discovery.versions.get(kind)
        ]
        if missing:
            raise StepFailed(
                f"not served: {', '.join(missing)}",
                "Install the CustomResourceDefinitions",
            )
        # Several streams may read one kind, such as events.
        served = {
            kind.resource
            for kind, version in self._discovery.versions.items()
            if version
        }
        known = {kind.resource for kind in self._discovery.versions}
        return f"{len(served)} of {len(known)} kinds of {self._api.title} are served"

    def check_access(self) -> str:
        rules = read_rules(self._client, deadline=self._deadline)
        kinds = dict.fromkeys(
            kind for kind, version in self._discovery.versions.items() if version
        )
        if rules is not None:
            self._permissions = permissions_in(rules, kinds)
        else:
            by_resource = {
                kind.resource: KindPermissions(
                    kind.resource,
                    kind.is_required,
                    {
                        verb: bool(self._review(Access(verb, kind.group, kind.plural)))
                        if kind.is_required
                        else None
                        for verb in READ_VERBS
                    },
                )
                for kind in kinds
            }
            self._permissions = tuple(by_resource.values())
        missing = [
            f"{verb} {permission.resource}"
            for permission in self._permissions
            for verb in READ_VERBS
            if permission.is_required and not permission.verbs[verb]
        ]
        if missing:
            raise StepFailed(f"not allowed: {', '.join(missing)}", _HINT)
        optional = [
            permission.resource
            for permission in self._permissions
            if not permission.is_required
            and any(permission.verbs[verb] is False for verb in READ_VERBS)
        ]
        return (
            f"allowed; not readable and not required: {', '.join(optional)}"
            if optional
            else "allowed"
        )

    def check_lists(self) -> str:
        for kind in self._api.required:
            path = kind.path(self._discovery.versions[kind])
            answer = self._client.request(
                "GET", path, query={"limit": "1"}, deadline=self._deadline
            )
            if answer.status != 200:
                hint = _HINT if answer.status == 403 else ""
                raise StepFailed(
                    f"the hub answers {answer.status} to list {kind.resource}", hint
                )
        return "one object of each required kind was read"


def check_hub(
    api: HubApi, connection: Mapping[str, Any], values: Mapping[str, str]
) -> HubCheckReport:
    """Check a connection; no transaction may be open."""
    try:
        client = open_hub_client(connection, values)
    except DriverUnavailable as error:
        return HubCheckReport((CheckStep("address", False, str(error)),))
    with closing(client):
        return HubCheck(api, client).report()
