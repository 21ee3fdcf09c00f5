"""The form of a connection: what was entered, without its secrets, with the errors at their fields."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.conf import settings
from django.http import QueryDict

from clusters.operations.connection import ConnectionInput
from fleetui.apimachinery.errors import FieldError, InvalidManifest

KUBECONFIG, FIELDS, IN_CLUSTER = "kubeconfig", "fields", "in-cluster"
NAME_PATH = "metadata.name"
_SECRETS = ("token", "certificate", "key")
_PUBLIC = ("server", "ca", "tlsServerName", "proxy")


@dataclass(frozen=True, slots=True)
class FormField:
    """One field; a secret has no value, whatever was entered."""

    name: str
    label: str
    hint: str = ""
    control: str = "text"
    value: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False
    faults: tuple[FieldError, ...] = ()


NAME = FormField(
    "name", "Name", "DNS label, at most 63 characters. Cannot be changed later.", is_required=True
)
_OF_KUBECONFIG = (
    FormField(
        KUBECONFIG,
        "Kubeconfig",
        "The text of the file, with certificates and keys as -data. It is parsed once and not stored as text;"
        " its secrets are stored encrypted and never shown again.",
        "secret-text",
        is_required=True,
    ),
    FormField("context", "Context", "Default: the current context of the kubeconfig."),
)
_OF_FIELDS = (
    FormField("server", "Server", "https://HOST[:PORT][/PATH]", is_required=True),
    FormField(
        "ca",
        "CA certificates",
        "PEM, 1 to 20 certificates. Default: the root certificates of the system.",
        "text-area",
    ),
    FormField(
        "token", "Token", "Of a service account, or a client certificate with its key instead.", "password"
    ),
    FormField("certificate", "Client certificate", "PEM.", "secret-text"),
    FormField("key", "Client key", "PEM, not encrypted.", "secret-text"),
    FormField(
        "tlsServerName", "TLS server name", "The name in the certificate of the server, if it is another one."
    ),
    FormField("proxy", "Proxy", "One of FLEETUI_MEMBER_PROXIES.", "select"),
    FormField(
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
    name: FormField
    of_kubeconfig: tuple[FormField, ...]
    of_fields: tuple[FormField, ...]
    faults: tuple[FieldError, ...]
    may_be_in_cluster: bool

    @property
    def fields(self) -> tuple[FormField, ...]:
        return (self.name, *self.of_kubeconfig, *self.of_fields)

    @property
    def has_faults(self) -> bool:
        return bool(self.faults) or any(one.faults for one in self.fields)


def connection_form(entered: QueryDict | dict[str, str], faults: Sequence[FieldError] = ()) -> ConnectionForm:
    """Return the form with what was entered; the values of secrets are left out."""
    source = entered.get("source", "")
    proxies = tuple(sorted(settings.MEMBER_PROXIES))
    left_out = {
        name
        for name, is_shown in (("proxy", bool(proxies)), ("insecureTLS", settings.ALLOW_INSECURE_TLS))
        if not is_shown
    }
    by_field: dict[str, list[FieldError]] = {}
    for fault in faults:
        by_field.setdefault(_field_of(fault), []).append(fault)

    def filled(fields: Sequence[FormField]) -> tuple[FormField, ...]:
        return tuple(
            replace(
                one,
                value="" if one.control in ("secret-text", "password") else str(entered.get(one.name, "")),
                choices=proxies if one.name == "proxy" else (),
                faults=tuple(by_field.pop(one.name, ())),
            )
            for one in fields
            if one.name not in left_out
        )

    [name] = filled([NAME])
    of_kubeconfig, of_fields = filled(_OF_KUBECONFIG), filled(_OF_FIELDS)
    others = tuple(fault for listed in by_field.values() for fault in listed)
    known = (KUBECONFIG, FIELDS, IN_CLUSTER)
    return ConnectionForm(
        source if source in known else KUBECONFIG, name, of_kubeconfig, of_fields, others, settings.IN_CLUSTER
    )


def _field_of(fault: FieldError) -> str:
    if fault.path == NAME_PATH:
        return NAME.name
    return KUBECONFIG if fault.path.startswith(KUBECONFIG) else fault.path


def connection_input(entered: QueryDict) -> ConnectionInput:
    """Return what was entered under the chosen source. Raise InvalidManifest for an empty kubeconfig."""
    source = entered.get("source", "")
    if source == IN_CLUSTER:
        return ConnectionInput(fields={"inCluster": True})
    if source == FIELDS:
        # Browsers send the lines of a text area with CRLF.
        values = {name: entered.get(name, "").replace("\r\n", "\n") for name in (*_PUBLIC, *_SECRETS)}
        fields: dict[str, object] = {name: value for name, value in values.items() if value.strip()}
        if entered.get("insecureTLS"):
            fields["insecureTLS"] = True
        return ConnectionInput(fields=fields)
    text = entered.get(KUBECONFIG, "")
    if not text.strip():
        raise InvalidManifest.of(KUBECONFIG, "required", "Required value", "the text of a kubeconfig")
    return ConnectionInput(text, entered.get("context", "").strip())
