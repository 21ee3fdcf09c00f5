"""The check of a connection, step by step: address, TCP, TLS, version, authentication, permissions (3.6)."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from clusters.drivers.base import DriverRejected, DriverUnavailable
from clusters.drivers.kubernetes.access import Discovery, KindNotServedError
from clusters.drivers.kubernetes.client import Client, errors_mapped
from clusters.drivers.kubernetes.configuration import split_server
from clusters.drivers.kubernetes.inventory import list_holders, read_cluster_uid
from clusters.drivers.kubernetes.sockets import (
    CONNECT_SECONDS,
    AddressNotAllowed,
    AddressRules,
    BoundedConnection,
    NameNotResolved,
    check_address,
    checked_addresses,
    is_ip_address,
    resolved_addresses,
    tls_context,
)
from clusters.drivers.kubernetes.targets import INVENTORY_NAMESPACE
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.words import with_group
from fleetui.errors import CONFIRMATION_NEEDED, FleetError

CHECK_SECONDS = 10.0

INVENTORY_VERBS = ("get", "list", "create", "patch", "delete")
KIND_VERBS = ("get", "create", "patch", "delete")
_THREADS = 4
FAILED_CHECK = "failed-check"
"""What a caller confirms to save a connection although its check fails."""
OTHER_CLUSTER = "other-cluster"
"""What a caller confirms to connect a member to another cluster than before."""
IDENTITY = "identity"
"""The step that reads which cluster it is."""
_MARKS = {True: "ok", False: "failed", None: "-"}
_OPTIONS = {FAILED_CHECK: "--confirm", OTHER_CLUSTER: "--other-cluster"}


@dataclass(frozen=True, slots=True)
class Access:
    """One permission that a connection needs: a verb on a resource, by name as a step."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    is_optional: bool = False

    @property
    def name(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {with_group(self.resource, self.group)}{place}"


@dataclass(frozen=True, slots=True)
class CheckStep:
    """One step of a check; `ok` is None where it was not run, since a step before it failed.

    `access` is the permission that the step is about, if it is about one. `is_optional`: the cluster works
    without it.
    """

    step: str
    ok: bool | None
    message: str
    hint: str = ""
    access: Access | None = field(default=None, compare=False)

    @property
    def is_optional(self) -> bool:
        return self.access is not None and self.access.is_optional

    @property
    def line(self) -> str:
        """Return the step as commands print it, with the hint where it failed."""
        words = f"{_MARKS[self.ok]:7}{self.step}: {self.message}"
        return f"{words} ({self.hint})" if self.hint and not self.ok else words


class StepFailed(Exception):
    """A step failed; those after it are not run."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The steps of a check, and what is confirmed to save the connection although one of them failed."""

    steps: tuple[CheckStep, ...]
    confirm: str = FAILED_CHECK

    @property
    def is_passed(self) -> bool:
        """Return whether all steps succeeded, apart from permissions that are not required."""
        return all(step.ok or step.is_optional for step in self.steps)

    @property
    def failed(self) -> list[CheckStep]:
        """Return the steps that failed, apart from permissions that are not required."""
        return [
            step for step in self.steps if step.ok is False and not step.is_optional
        ]

    @property
    def how_to_confirm(self) -> str:
        """Return what commands print after the steps of a check that failed."""
        option = _OPTIONS[self.confirm]
        return f"The check failed, and nothing was saved; repeat the command with {option} to save it"


class ConnectionCheckFailed(FleetError):
    """A connection was not saved, since its check failed."""

    problem_type = CONFIRMATION_NEEDED

    def __init__(self, result: CheckResult) -> None:
        failed = [step for step in result.steps if step.ok is False]
        super().__init__("; ".join(f"{step.step}: {step.message}" for step in failed))
        self.result = result


class ConnectionCheck:
    """One check of a connection; every step raises StepFailed with its reason.

    `kinds`: (apiVersion, kind) of what is placed on the cluster, or is going to be. `usual`: by group, the
    resources that placements usually need; what is missing of them is reported, and fails no check.
    Afterwards `cluster_uid` is that of the cluster, and `holders` are the members of the console `hub_id`
    that have objects there; None where that is not known.
    """

    def __init__(
        self,
        client: Client,
        *,
        rules: AddressRules,
        kinds: Sequence[tuple[str, str]] = (),
        usual: Mapping[str, Sequence[str]] | None = None,
        hub_id: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cluster_uid = ""
        self.holders: frozenset[str] | None = None
        self._hub_id = hub_id
        self._client = client
        self._rules = rules
        self._kinds = kinds
        self._usual = usual or {}
        self._monotonic = monotonic
        self._connection = client.connection
        self._address = split_server(client.connection.server)
        self._addresses: list[str] = []
        self._is_rejected = False
        self._deadline = 0.0

    def run(self, *, seconds: float = CHECK_SECONDS) -> tuple[CheckStep, ...]:
        """Run the steps for at most so many seconds; no step raises."""
        self._deadline = self._monotonic() + seconds
        steps: list[CheckStep] = []
        checks = [
            ("address", self.check_address_step),
            ("TCP", self.check_tcp),
            ("TLS", self.check_tls),
            ("version", self.check_version),
            ("authentication", self.check_authentication),
        ]
        if self._hub_id:  # of a member; nothing is placed on the API server of a hub
            checks.append((IDENTITY, self.check_identity))
        for name, run in checks:
            if any(not step.ok for step in steps if step.step != IDENTITY):
                steps.append(CheckStep(name, None, "not run"))
                continue
            try:
                steps.append(CheckStep(name, True, run()))
            except StepFailed as error:
                steps.append(CheckStep(name, False, error.message, error.hint))
        if any(not step.ok for step in steps if step.step != IDENTITY):
            return (*steps, CheckStep("permissions", None, "not run"))
        return (*steps, *self.check_permissions())

    def check_address_step(self) -> str:
        host = self._address.host
        port = self._address.port
        try:
            if self._connection.proxy:
                proxy = urlsplit(self._connection.proxy)
                if is_ip_address(host):
                    check_address(host, self._rules)
                host = proxy.hostname or ""
                port = proxy.port or 0
                self._addresses = resolved_addresses(
                    host, port, self._rules, seconds=CONNECT_SECONDS
                )
            else:
                self._addresses = checked_addresses(
                    host, port, self._rules, seconds=CONNECT_SECONDS
                )
        except AddressNotAllowed as error:
            raise StepFailed(str(error), error.setting) from error
        except NameNotResolved as error:
            raise StepFailed(
                str(error), "The console resolves the name with its own name servers"
            ) from error
        return f"{host} is {', '.join(self._addresses)}"

    def check_tcp(self) -> str:
        port = urlsplit(self._connection.proxy).port or self._address.port
        message = ""
        for address in self._addresses:
            timeout = max(
                0.001, min(CONNECT_SECONDS, self._deadline - self._monotonic())
            )
            try:
                with closing(socket.create_connection((address, port), timeout)):
                    return f"connected to {address}, port {port}"
            except TimeoutError:
                message = f"no answer from {address}, port {port}"
            except OSError as error:
                message = (
                    f"{address}, port {port}: {error.strerror or 'cannot be reached'}"
                )
        raise StepFailed(
            message,
            "Check port, routes and firewalls between the console and the cluster",
        )

    def check_tls(self) -> str:
        try:
            with errors_mapped(self._connection):
                context = tls_context(self._connection, self._client.secret())
                address = self._address
                link = BoundedConnection(
                    address.host,
                    address.port,
                    self._connection,
                    context,
                    self._rules,
                    self._monotonic,
                )
                link.deadline = min(self._deadline, self._monotonic() + CONNECT_SECONDS)
                with closing(link):
                    link.connect()
                    certificate = None
                    if isinstance(link.sock, ssl.SSLSocket):
                        certificate = link.sock.getpeercert()
        except DriverUnavailable as error:
            hint = (
                "Give the CA certificate of this cluster" if error.code == "tls" else ""
            )
            raise StepFailed(str(error), hint) from error
        if not certificate:
            return "the certificate of the server was not verified"
        subject, issuer = (
            common_name(certificate.get(key)) for key in ("subject", "issuer")
        )
        return f"certificate of {subject}, issued by {issuer}, valid until {certificate.get('notAfter', '?')}"

    def check_version(self) -> str:
        try:
            version = self.read_version()
        except DriverUnavailable as error:
            if error.code == "credentials":  # reported by the step that is about them
                self._is_rejected = True
                return "an API server, which names its version to accepted credentials only"
            raise StepFailed(str(error)) from error
        return f"Kubernetes {version or '?'}"

    def read_version(self) -> str:
        answer = self._client.request("GET", "/version", deadline=self._deadline)
        if answer.status != 200:
            raise StepFailed(f"the API server answers {answer.status} to /version")
        version = answer.body.get("gitVersion")
        return (
            version[:50] if isinstance(version, str) and version.isprintable() else ""
        )

    def check_authentication(self) -> str:
        hint = "Create a new token for the account of the console"
        if self._is_rejected:
            raise StepFailed("credentials rejected (401)", hint)
        try:
            # Every authenticated user may review its own access; an anonymous one may not.
            access = Access("get", "", "configmaps", INVENTORY_NAMESPACE)
            is_allowed = self._review(access)
        except DriverUnavailable as error:
            raise StepFailed(
                str(error), hint if error.code == "credentials" else ""
            ) from error
        if is_allowed is None:
            raise StepFailed("the credentials may not review their own access", hint)
        return "credentials accepted"

    def check_identity(self) -> str:
        try:
            self.cluster_uid = read_cluster_uid(self._client, deadline=self._deadline)
            holders = list_holders(
                self._client, hub_id=self._hub_id, deadline=self._deadline
            )
            self.holders = frozenset(holders)
        except DriverUnavailable as error:
            raise StepFailed(str(error)) from error
        except DriverRejected:  # the permission for the inventory is a step of its own
            self.holders = None
        if not self.cluster_uid:
            raise StepFailed(
                "the account may not get the namespace kube-system",
                'Apply the manifest of "Prepare a cluster"',
            )
        return f"UID {self.cluster_uid}"

    def check_permissions(self) -> Iterator[CheckStep]:
        needed = [
            *(
                Access(verb, "", "configmaps", INVENTORY_NAMESPACE)
                for verb in INVENTORY_VERBS
            ),
            Access("list", "", "nodes"),
            Access("list", "", "pods", is_optional=True),
        ]
        discovery = Discovery(self._client, self._monotonic)
        missing = []
        for api_version, kind in self._kinds:
            try:
                served = discovery.resource(api_version, kind, deadline=self._deadline)
            except (KindNotServedError, DriverUnavailable) as error:
                missing.append(CheckStep(f"{kind} in {api_version}", False, str(error)))
                continue
            group = api_version.rpartition("/")[0]
            needed += [Access(verb, group, served.plural) for verb in KIND_VERBS]
        names = {access.name for access in needed}
        usual = (
            Access(verb, group, resource, is_optional=True)
            for group, resources in self._usual.items()
            for resource in resources
            for verb in KIND_VERBS
        )
        needed += [access for access in usual if access.name not in names]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="check") as pool:
            yield from pool.map(self.check_permission, dict.fromkeys(needed))
        yield from missing

    def check_permission(self, access: Access) -> CheckStep:
        try:
            is_allowed = self._review(access)
        except DriverUnavailable as error:
            return CheckStep(access.name, False, str(error), access=access)
        if is_allowed:
            return CheckStep(access.name, True, "allowed", access=access)
        hint = 'Apply the manifest of "Prepare a cluster" with this kind'
        if access.is_optional:
            hint = "Not required now: no placement needs it here, and one that does will be refused"
        if access.is_optional and access.resource == "pods":
            hint = "Not required: without it the available capacity of the cluster is unknown"
        return CheckStep(access.name, False, "not allowed", hint, access)

    def _review(self, access: Access) -> bool | None:
        """Return whether the credentials have a permission; None where they may not find out."""
        attributes = {
            "verb": access.verb,
            "group": access.group,
            "resource": access.resource,
        }
        if access.namespace:
            attributes["namespace"] = access.namespace
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = self._client.request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            body=review,
            deadline=self._deadline,
        )
        status = mapping_at(answer.body, "status")
        if answer.status != 201 or "allowed" not in status:
            return None
        return bool(status["allowed"])


def common_name(name: Any) -> str:
    pairs = {key: value for part in name or () for key, value in part}
    return str(pairs.get("commonName") or pairs.get("organizationName") or "?")
