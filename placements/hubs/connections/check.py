"""The check of a connection to a hub: at most 20 requests and 15 seconds.

See `rules/live-hub.md#check-of-a-connection`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
from placements.hubs.connections.connection import open_hub_client
from placements.hubs.connections.discovery import (
    READ_VERBS,
    HubDiscovery,
    KindPermissions,
    Unsuitable,
    discover_kinds,
    permissions_in,
    read_rules,
    server_version,
)
from placements.hubs.kinds.base import HubApi

CHECK_SECONDS = 15.0
_HINT = "Apply the manifest that manage.py connect_hub --rbac viewer prints"


@dataclass(frozen=True, slots=True)
class HubCheckReport(CheckResult):
    permissions: tuple[KindPermissions, ...] = ()
    server_version: str = ""

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [one.document for one in self.permissions]


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
            hint = "A fleet of Azure without a hub has no placement API"
            raise StepFailed(
                str(error), hint if isinstance(error, Unsuitable) else ""
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
            f"{verb} {one.resource}"
            for one in self._permissions
            for verb in READ_VERBS
            if one.is_required and not one.verbs[verb]
        ]
        if missing:
            raise StepFailed(f"not allowed: {', '.join(missing)}", _HINT)
        optional = [
            one.resource
            for one in self._permissions
            if not one.is_required
            and any(one.verbs[verb] is False for verb in READ_VERBS)
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
    try:
        return HubCheck(api, client).report()
    finally:
        client.close()
