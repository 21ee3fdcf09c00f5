"""Forms of clusters: connections without their secrets, with errors at their fields; labels and taints."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, QueryDict

from clusters.connection_input import CLUSTER_NAME_HINT, ConnectionInput
from clusters.drivers.kubernetes.check import CheckResult, ConnectionCheckFailed
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.htmx import redirect_page, render_page
from placements.explain.connections import CheckReport, check_report
from placements.services.fleet.forms import (
    LABELS_PATH,
    TAINTS_PATH,
    TypedCluster,
    read_cluster,
    typed_rows,
)

KUBECONFIG = "kubeconfig"
FIELDS = "fields"
IN_CLUSTER = "in-cluster"
NAME_PATH = "metadata.name"
_SECRETS = ("token", "certificate", "key")
_PUBLIC = ("server", "ca", "tlsServerName", "proxy")
_OF_A_SOURCE = _PUBLIC + _SECRETS


@dataclass(frozen=True, slots=True)
class ConnectionField:
    """One field; a secret has no value, whatever was entered. `path` is where its errors are, else `name`."""

    name: str
    label: str
    hint: str = ""
    control: str = "text"
    value: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    is_required: bool = False
    path: str = ""
    errors: tuple[FieldError, ...] = ()

    def has(self, error: FieldError) -> bool:
        place = self.path or self.name
        return error.path == place or error.path.startswith((f"{place}.", f"{place}["))


OF_CLUSTER = (
    ConnectionField(
        "name",
        "Name",
        CLUSTER_NAME_HINT,
        is_required=True,
        path=NAME_PATH,
    ),
    ConnectionField(
        "labels",
        "Labels",
        "One key=value per line.",
        "text-area",
        path=LABELS_PATH,
    ),
    ConnectionField(
        "taints",
        "Taints",
        "One key=value:NoSchedule per line; value and effect are optional.",
        "text-area",
        path=TAINTS_PATH,
    ),
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
    ConnectionField("context", "Context", "Required if the kubeconfig has several."),
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
    own: tuple[ConnectionField, ...]
    of_kubeconfig: tuple[ConnectionField, ...]
    of_fields: tuple[ConnectionField, ...]
    errors: tuple[FieldError, ...]
    may_be_in_cluster: bool

    @property
    def fields(self) -> tuple[ConnectionField, ...]:
        return (*self.own, *self.of_kubeconfig, *self.of_fields)

    @property
    def has_errors(self) -> bool:
        return bool(self.errors) or any(field.errors for field in self.fields)


def connection_form(
    entered: Mapping[str, Any],
    errors: Iterable[FieldError] = (),
    *,
    own: Sequence[ConnectionField] = (),
) -> ConnectionForm:
    """Return the form with what was entered; the values of secrets are left out.

    `own` are the fields of what is connected.
    """
    source = entered.get("source", "")
    if source not in (KUBECONFIG, FIELDS, IN_CLUSTER):
        source = KUBECONFIG
    proxies = sorted(settings.MEMBER_PROXIES)
    left_out = {"proxy": not proxies, "insecureTLS": not settings.ALLOW_INSECURE_TLS}
    others = list(errors)

    def filled(fields: Iterable[ConnectionField]) -> Iterator[ConnectionField]:
        for field in fields:
            if left_out.get(field.name):
                continue
            # Also what a kubeconfig lacks: the fields of another source are hidden.
            is_whole = field.name == KUBECONFIG == source
            mine = tuple(
                other
                for other in others
                if field.has(other) or (is_whole and other.path in _OF_A_SOURCE)
            )
            others[:] = [other for other in others if other not in mine]
            value = ""
            if field.control not in ("secret-text", "password"):
                value = str(entered.get(field.name, field.value))
            choices = field.choices
            if field.name == "proxy":
                choices = (("", "None"), *((proxy, proxy) for proxy in proxies))
            yield replace(field, value=value, choices=choices, errors=mine)

    return ConnectionForm(
        source,
        tuple(filled(own)),
        tuple(filled(_OF_KUBECONFIG)),
        tuple(filled(_OF_FIELDS)),
        tuple(others),
        settings.IN_CLUSTER,
    )


def connection_page(
    request: HttpRequest,
    page: str,
    context: Mapping[str, Any],
    *,
    submit: Callable[[], CheckResult | str],
    report: Callable[[Any], CheckReport] = check_report,
    own: Sequence[ConnectionField] = (),
    stored: Mapping[str, Any] | None = None,
) -> HttpResponseBase:
    """Show the form of a connection, or submit what was entered.

    `submit` returns the result of a check, or the address of what was saved. `stored` is the connection
    without its secret. htmx gets the result and the errors alone: the browser keeps what was entered.
    """
    entered: Mapping[str, Any] = {**(stored or {}), **request.GET.dict()}
    errors: tuple[FieldError, ...] = ()
    shown = {**context, "report": None}
    status = 200
    if request.method == "POST":
        entered = request.POST
        try:
            answer = submit()
        except InvalidManifest as error:
            status = 422
            errors = error.errors
        except ConnectionCheckFailed as error:
            status = 422
            shown |= {"report": report(error.result), "is_refused": True}
        else:
            if isinstance(answer, str):
                return redirect_page(request, answer)
            shown["report"] = report(answer)
    shown["form"] = connection_form(entered, errors, own=own)
    return render_page(
        request, page, shown, fragment="connections/_result.html", status=status
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
