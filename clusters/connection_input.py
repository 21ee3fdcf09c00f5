"""What a new cluster may be, and the connection that a user entered: a kubeconfig or fields."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from clusters.drivers.base import KUBERNETES, SIMULATED
from clusters.drivers.kubernetes.configuration import split_server
from clusters.drivers.kubernetes.sockets import (
    CONNECT_SECONDS,
    AddressNotAllowed,
    NameNotResolved,
    checked_addresses,
    is_ip_address,
)
from clusters.kubeconfig import (
    LARGEST_KUBECONFIG,
    ParsedConnection,
    Secret,
    parse_fields,
    parse_kubeconfig,
)
from clusters.kubernetes_drivers import address_rules
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import load_documents

CLUSTER_NAME_HINT = (
    "Lowercase letters, digits, “-” and “.”, at most 63. Cannot be changed."
)
REPORTED_BY_AGENT = "agent"
CLUSTER_KINDS = (
    (SIMULATED, "Simulated", "Exists only in this console. For trying things out."),
    (
        KUBERNETES,
        "Kubernetes",
        "The console connects to its API server, applies resources and observes them.",
    ),
    (
        REPORTED_BY_AGENT,
        "Reported by an agent",
        "An agent in the cluster sends heartbeats over REST."
        " Placements are scheduled, not applied.",
    ),
)
"""What a new cluster may be, the usual first: value, name and explanation."""
DRIVERS_BY_KIND = {SIMULATED: SIMULATED, REPORTED_BY_AGENT: ""}
"""The drivers of new clusters that join without a connection."""


@dataclass(frozen=True, slots=True)
class ConnectionInput:
    """A kubeconfig with a context ("": the only one), or separate fields; it holds secrets."""

    kubeconfig: str = field(default="", repr=False)
    context: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)


def parse_connection_input(
    wanted: ConnectionInput,
    *,
    kept: Callable[[Mapping[str, Any]], Secret | None],
    now: datetime,
) -> ParsedConnection:
    """Return the connection that a user entered; `kept` returns the stored secret where none was entered.

    Raise InvalidManifest, also for an address that is not allowed.
    """
    rules = address_rules()
    if wanted.kubeconfig:
        if wanted.fields:
            raise InvalidManifest.of(
                "kubeconfig",
                "conflict",
                "Forbidden: with separate fields",
                "a kubeconfig or separate fields",
            )
        documents = load_documents(wanted.kubeconfig, max_bytes=LARGEST_KUBECONFIG)
        if len(documents) != 1:
            raise InvalidManifest.of(
                "kubeconfig",
                "wrong-type",
                f"Invalid value: {len(documents)} documents",
                "one kubeconfig",
            )
        parsed = parse_kubeconfig(
            documents[0].data, context=wanted.context, rules=rules, now=now
        )
    else:
        parsed = parse_fields(wanted.fields, rules=rules, now=now)
    if parsed.secret is None and "inCluster" not in parsed.connection:
        parsed = replace(parsed, secret=kept(parsed.connection))
    return _with_allowed_address(parsed)


def parse_connection_document(
    data: object, *, context: str, now: datetime
) -> ParsedConnection:
    """Return the connection of a context, by the rules of what a user enters. Raise InvalidManifest."""
    parsed = parse_kubeconfig(data, context=context, rules=address_rules(), now=now)
    return _with_allowed_address(parsed)


def _with_allowed_address(parsed: ParsedConnection) -> ParsedConnection:
    """Return the connection. Raise InvalidManifest for an address that is not allowed."""
    rules = address_rules()
    server = split_server(parsed.connection.get("server", ""))
    # Behind a proxy names are not resolved here; a server that is given as an address is checked.
    if server.host and (is_ip_address(server.host) or "proxy" not in parsed.connection):
        try:
            checked_addresses(server.host, server.port, rules, seconds=CONNECT_SECONDS)
        except AddressNotAllowed as error:
            raise InvalidManifest.of(
                parsed.server_path,
                "address-not-allowed",
                f"Forbidden: {error}",
                error.setting,
            ) from error
        except NameNotResolved:  # reported by the check
            return parsed
    return parsed
