"""Forms of clusters: connections without their secrets, with errors at their fields; labels and taints."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.conf import settings
from django.http import QueryDict

from clusters.operations.connection import ConnectionInput
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from placements.services.fleet.forms import (
    LABELS_PATH,
    TAINTS_PATH,
    TypedCluster,
    read_cluster,
    typed_rows,
)

KUBECONFIG, FIELDS, IN_CLUSTER = "kubeconfig", "fields", "in-cluster"
NAME_PATH = "metadata.name"
_SECRETS = ("token", "certificate", "key")
_PUBLIC = ("server", "ca", "tlsServerName", "proxy")


@dataclass(frozen=True, slots=True)
class ConnectionField:
    """One field; a secret has no value, whatever was entered."""

    name: str
    label: str
    hint: str = ""
    control: str = "text"
    value: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False
    errors: tuple[FieldError, ...] = ()


NAME = ConnectionField(
    "name",
    "Name",
    "Lower-case letters, digits, - and ., at most 63. Cannot be changed.",
    is_required=True,
)
LABELS = ConnectionField("labels", "Labels", "One key=value per line.", "text-area")
TAINTS = ConnectionField(
    "taints",
    "Taints",
    "One key=value:NoSchedule per line; value and effect are optional.",
    "text-area",
)
_OF_KUBECONFIG = (
    ConnectionField(
        KUBECONFIG,
        "Kubeconfig",
        "The text of the file, with certificates and keys as -data. It is parsed once and not stored as text;"
        " its secrets are stored encrypted and never shown again.",
        "secret-text",
        is_required=True,
    ),
    ConnectionField(
        "context", "Context", "Default: the current context of the kubeconfig."
    ),
)
_OF_FIELDS = (
    ConnectionField("server", "Server", "https://HOST[:PORT][/PATH]", is_required=True),
    ConnectionField(
        "ca",
        "CA certificates",
        "PEM, 1 to 20 certificates. Default: the root certificates of the system.",
        "text-area",
    ),
    ConnectionField(
        "token",
        "Token",
        "Of a service account, or a client certificate with its key instead.",
        "password",
    ),
    ConnectionField("certificate", "Client certificate", "PEM.", "secret-text"),
    ConnectionField("key", "Client key", "PEM, not encrypted.", "secret-text"),
    ConnectionField(
        "tlsServerName",
        "TLS server name",
        "The name in the certificate of the server, if it is another one.",
    ),
    ConnectionField("proxy", "Proxy", "One of FLEETUI_MEMBER_PROXIES.", "select"),
    ConnectionField(
        "insecureTLS",
        "Turn off TLS verification",
        "Anyone on the network path can then read the credentials and change what is applied.",
        "checkbox",
    ),
)


@dataclass(frozen=True, slots=True)
class ConnectionForm:
    """The fields of the form by the source of the connection, and the errors that belong to none."""

    source: str
    name: ConnectionField
    of_cluster: tuple[ConnectionField, ...]
    of_kubeconfig: tuple[ConnectionField, ...]
    of_fields: tuple[ConnectionField, ...]
    errors: tuple[FieldError, ...]
    may_be_in_cluster: bool

    @property
    def fields(self) -> tuple[ConnectionField, ...]:
        return (self.name, *self.of_cluster, *self.of_kubeconfig, *self.of_fields)

    @property
    def has_errors(self) -> bool:
        return bool(self.errors) or any(one.errors for one in self.fields)


def connection_form(
    entered: QueryDict | dict[str, str], errors: Sequence[FieldError] = ()
) -> ConnectionForm:
    """Return the form with what was entered; the values of secrets are left out."""
    entered_source = entered.get("source", "")
    source = (
        entered_source
        if entered_source in (KUBECONFIG, FIELDS, IN_CLUSTER)
        else KUBECONFIG
    )
    proxies = tuple(sorted(settings.MEMBER_PROXIES))
    left_out = {
        name
        for name, is_shown in (
            ("proxy", bool(proxies)),
            ("insecureTLS", settings.ALLOW_INSECURE_TLS),
        )
        if not is_shown
    }
    by_field: dict[str, list[FieldError]] = {}
    for error in errors:
        is_of_fields = error.path in _PUBLIC + _SECRETS
        field = NAME.name if error.path == NAME_PATH else error.path
        if error.path.startswith((LABELS_PATH, TAINTS_PATH)):
            field = LABELS.name if error.path.startswith(LABELS_PATH) else TAINTS.name
        # Also what a kubeconfig lacks: the fields of another source are hidden.
        if error.path.startswith(KUBECONFIG) or (is_of_fields and source == KUBECONFIG):
            field = KUBECONFIG
        elif is_of_fields and source != FIELDS:
            field = ""
        by_field.setdefault(field, []).append(error)

    def filled(fields: Sequence[ConnectionField]) -> tuple[ConnectionField, ...]:
        return tuple(
            replace(
                one,
                value=""
                if one.control in ("secret-text", "password")
                else str(entered.get(one.name, "")),
                choices=proxies if one.name == "proxy" else (),
                errors=tuple(by_field.pop(one.name, ())),
            )
            for one in fields
            if one.name not in left_out
        )

    name, *of_cluster = filled([NAME, LABELS, TAINTS])
    of_kubeconfig, of_fields = filled(_OF_KUBECONFIG), filled(_OF_FIELDS)
    others = tuple(
        error for field_errors in by_field.values() for error in field_errors
    )
    return ConnectionForm(
        source,
        name,
        tuple(of_cluster),
        of_kubeconfig,
        of_fields,
        others,
        settings.IN_CLUSTER,
    )


def typed_cluster(entered: QueryDict) -> TypedCluster:
    """Return the labels and taints that were entered. Raise InvalidManifest for malformed lines."""
    typed = read_cluster(*typed_rows(entered))
    if typed.errors:
        raise InvalidManifest(typed.errors)
    return typed


def connection_input(entered: QueryDict) -> ConnectionInput:
    """Return what was entered under the chosen source. Raise InvalidManifest for an empty kubeconfig."""
    source = entered.get("source", "")
    if source == IN_CLUSTER:
        return ConnectionInput(fields={"inCluster": True})
    if source == FIELDS:
        # Browsers send the lines of a text area with CRLF.
        values = {
            name: entered.get(name, "").replace("\r\n", "\n")
            for name in (*_PUBLIC, *_SECRETS)
        }
        fields: dict[str, object] = {
            name: value for name, value in values.items() if value.strip()
        }
        if entered.get("insecureTLS"):
            fields["insecureTLS"] = True
        return ConnectionInput(fields=fields)
    text = entered.get(KUBECONFIG, "")
    if not text.strip():
        raise InvalidManifest.of(
            KUBECONFIG, "required", "Required value", "the text of a kubeconfig"
        )
    return ConnectionInput(text, entered.get("context", "").strip())
