"""A kubeconfig, or separate fields, as a connection and its secret.

See `rules/kubernetes-driver.md#connections`.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from clusters.drivers.kubernetes.configuration import parse_connection
from clusters.drivers.kubernetes.sockets import AddressRules
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    format_path,
    split_path,
)
from fleetui.apimachinery.model import mapping_at, quote_value
from fleetui.apimachinery.words import is_token

LARGEST_KUBECONFIG = 256 * 1024
LONGEST_TOKEN = 16 * 1024
EXPIRY_WARNING = timedelta(days=14)
TOKEN = "token"  # noqa: S105 -- a kind of secret
CERTIFICATE = "certificate"
_PROGRAM = "would run a program chosen by the file on this console; use a service account token"
_FILE = "names a file on this console's disk; use the {key}-data form"
_NOT_SUPPORTED: Mapping[str, str] = {
    "exec": _PROGRAM,
    "auth-provider": _PROGRAM,
    "certificate-authority": _FILE,
    "client-certificate": _FILE,
    "client-key": _FILE,
    "tokenFile": "names a file on this console's disk; put its content into token",
    "username": "basic authentication was removed from Kubernetes; use a service account token",
    "password": "basic authentication was removed from Kubernetes; use a service account token",
    "as": "impersonation is not supported; use the credentials of the account itself",
    "as-groups": "impersonation is not supported; use the credentials of the account itself",
    "as-uid": "impersonation is not supported; use the credentials of the account itself",
    "as-user-extra": "impersonation is not supported; use the credentials of the account itself",
}
_KUBECONFIG_KEYS = {
    "server": "server",
    "ca": "certificate-authority-data",
    "tlsServerName": "tls-server-name",
    "proxy": "proxy-url",
    "insecureTLS": "insecure-skip-tls-verify",
    "token": "token",
    "certificate": "client-certificate-data",
    "key": "client-key-data",
}
Entry: TypeAlias = tuple[tuple[str | int, ...], Mapping[str, Any]]
_SECRET_KEYS = ("token", "certificate", "key")


@dataclass(frozen=True, slots=True)
class Secret:
    """A token, or a client certificate with its key; never shown."""

    values: Mapping[str, str] = field(repr=False)

    @property
    def kind(self) -> str:
        return TOKEN if TOKEN in self.values else CERTIFICATE


@dataclass(frozen=True, slots=True)
class ParsedConnection:
    """The public part of a connection as it is stored, and its secret; None where it names none.

    `server_path` is where the server was entered, for errors.
    """

    connection: Mapping[str, Any]
    secret: Secret | None = None
    server_path: str = field(default="server", compare=False)


class BoundObject(NamedTuple):
    """The object with which a token ends, as its claims name it."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SecretFacts:
    """What may be shown of a secret. `subject` of a token is its `sub` claim, read without verification."""

    kind: str
    subject: str
    issued_at: datetime | None
    expires_at: datetime | None
    bound_to: BoundObject | None = None

    @property
    def service_account(self) -> tuple[str, str] | None:
        parts = self.subject.split(":")
        is_account = (
            self.kind == TOKEN
            and parts[:2] == ["system", "serviceaccount"]
            and len(parts) == 4
        )
        return (parts[2], parts[3]) if is_account else None


def parse_kubeconfig(
    document: object,
    *,
    context: str = "",
    rules: AddressRules,
    now: datetime,
) -> ParsedConnection:
    """Return the connection that a context of a kubeconfig names. Raise InvalidManifest."""
    path = "kubeconfig"
    (cluster_keys, cluster), (user_keys, user) = _chosen_entries(
        document, context, path
    )
    errors = [*_unsupported(cluster, cluster_keys), *_unsupported(user, user_keys)]
    values: dict[str, Any] = {}
    for ours, theirs in _KUBECONFIG_KEYS.items():
        entry = cluster
        keys = cluster_keys
        if ours in _SECRET_KEYS:
            entry = user
            keys = user_keys
        value = entry.get(theirs)
        if value and theirs.endswith("-data"):
            try:
                content = base64.b64decode("".join(value.split()), validate=True)
                value = content.decode("ascii")
            except (AttributeError, ValueError):  # no text, no base64, no PEM
                place = format_path((*keys, theirs))
                message = "Invalid value: cannot be decoded"
                errors.append(
                    FieldError(place, "bad-format", message, "PEM text in base64")
                )
        values[ours] = value
    if errors:
        raise InvalidManifest(errors)

    def place_of(name: str) -> str:
        if name not in _KUBECONFIG_KEYS:
            return path
        keys = user_keys if name in _SECRET_KEYS else cluster_keys
        return format_path((*keys, _KUBECONFIG_KEYS[name]))

    return _checked(values, rules, now, place_of)


def parse_fields(
    fields: Mapping[str, Any], *, rules: AddressRules, now: datetime
) -> ParsedConnection:
    """Return the connection for separate fields; without a secret that of the result is None.

    Raise InvalidManifest.
    """
    return _checked(fields, rules, now, lambda name: format_path(split_path(name)))


def facts_of(secret: Secret) -> SecretFacts:
    """Return what may be shown of a secret that was checked."""
    if secret.kind == CERTIFICATE:
        certificate = x509.load_pem_x509_certificates(
            secret.values["certificate"].encode()
        )[0]
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        subject = str(names[0].value) if names else certificate.subject.rfc4514_string()
        before, after = (
            certificate.not_valid_before_utc,
            certificate.not_valid_after_utc,
        )
        return SecretFacts(CERTIFICATE, subject[:250], before, after)
    claims = token_claims(secret.values["token"])
    claimed = claims.get("sub")
    return SecretFacts(
        TOKEN,
        claimed[:250] if isinstance(claimed, str) and claimed.isprintable() else "",
        _moment(claims.get("iat")),
        _moment(claims.get("exp")),
        bound_object(claims.get("kubernetes.io")),
    )


def bound_object(claims: object) -> BoundObject | None:
    """Return the object that a token is bound to; the claims of one for a Pod name the Pod's Node, too."""
    if not isinstance(claims, dict):
        return None
    for kind in ("Pod", "Secret", "Node"):
        match claims.get(kind.lower()):
            case {"name": str(name), "uid": str(uid)}:
                return BoundObject(kind, name, uid)
    return None


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """A CA certificate as it is shown; the fingerprint is SHA-256, as openssl prints it."""

    subject: str
    fingerprint: str
    expires_at: datetime
    is_expiring: bool


def ca_facts(pem: str, *, now: datetime) -> tuple[CertificateFacts, ...]:
    """Return the certificates of a CA that was checked; `is_expiring`: within 14 days, or already."""
    certificates = x509.load_pem_x509_certificates(pem.encode()) if pem else []
    return tuple(
        CertificateFacts(
            certificate.subject.rfc4514_string(),
            certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
            certificate.not_valid_after_utc,
            certificate.not_valid_after_utc - now <= EXPIRY_WARNING,
        )
        for certificate in certificates
    )


def token_claims(token: str) -> Mapping[str, Any]:
    parts = token.split(".")
    try:
        claims = json.loads(
            base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        )
    except (IndexError, ValueError, RecursionError):
        return {}
    return dict(mapping_at(claims))


def _moment(seconds: object) -> datetime | None:
    """Return the time of a claim; None unless it is one that a calendar has."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 <= seconds < 2**40
    ):
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(seconds))
    except OverflowError:
        return None


def _checked(
    values: Mapping[str, Any],
    rules: AddressRules,
    now: datetime,
    place_of: Callable[[str], str],
) -> ParsedConnection:
    """Check the parts together; `place_of` returns the path of a field."""
    errors: list[FieldError] = []
    fields = {key: value for key, value in values.items() if value not in (None, "")}
    present = {key: fields.pop(key) for key in _SECRET_KEYS if key in fields}
    try:
        parse_connection(fields, path="")
    except InvalidManifest as error:
        errors += (
            FieldError(
                place_of(field_error.path),
                field_error.code,
                field_error.message,
                field_error.allowed,
            )
            for field_error in error.errors
        )
    if fields.get("insecureTLS") is True and not rules.allow_insecure_tls:
        errors.append(
            FieldError(
                place_of("insecureTLS"),
                "not-supported",
                (
                    "TLS verification cannot be turned off here; give the CA certificate, "
                    "or set FLEETUI_ALLOW_INSECURE_TLS=1 on this console"
                ),
            )
        )
    if fields.get("inCluster") is True and not rules.allow_in_cluster:
        message = "FLEETUI_IN_CLUSTER=1 is not set on this console"
        errors.append(FieldError(place_of("inCluster"), "not-supported", message))
    if fields.get("proxy") and fields["proxy"] not in rules.proxies:
        message = "The proxy is not in FLEETUI_MEMBER_PROXIES"
        allowed = ", ".join(sorted(rules.proxies))
        errors.append(FieldError(place_of("proxy"), "not-supported", message, allowed))
    errors += secret_errors(present, now, place_of)
    if fields.get("inCluster") is True and present:
        message = "Forbidden: inCluster uses the service account of this console's pod"
        errors.append(FieldError(place_of(next(iter(present))), "conflict", message))
    if errors:
        raise InvalidManifest(errors)
    connection = {key: value for key, value in fields.items() if value is not False}
    return ParsedConnection(
        connection, Secret(present) if present else None, place_of("server")
    )


def secret_errors(
    present: Mapping[str, Any], now: datetime, place_of: Callable[[str], str]
) -> Iterator[FieldError]:
    wrong = [key for key, value in present.items() if not isinstance(value, str)]
    yield from (
        FieldError(place_of(key), "wrong-type", "Invalid value: must be text", "text")
        for key in wrong
    )
    if wrong:
        return
    if "token" in present:
        if "certificate" in present or "key" in present:
            message = "Forbidden: both a token and a client certificate"
            yield FieldError(place_of("token"), "conflict", message, "one of the two")
        token = present["token"]
        if len(token) > LONGEST_TOKEN:
            yield FieldError(
                place_of("token"),
                "too-long",
                f"Too long: {len(token):,} characters",
                f"at most {LONGEST_TOKEN:,} characters",
            )
        elif not is_token(token):
            yield FieldError(
                place_of("token"),
                "bad-format",
                "Invalid value: contains white space or control characters",
                "the token alone, on one line",
            )
    elif "certificate" in present and "key" in present:
        yield from pair_errors(present["certificate"], present["key"], now, place_of)
    elif present:
        words = {"certificate": "the client certificate", "key": "the client key"}
        (has,) = present
        message = f"Invalid value: {words.pop(has)} without {', '.join(words.values())}"
        yield FieldError(place_of(has), "bad-format", message, "both in PEM format")


def pair_errors(
    certificate: str,
    key: str,
    now: datetime,
    place_of: Callable[[str], str],
) -> Iterator[FieldError]:
    first = private = None
    try:
        first = x509.load_pem_x509_certificates(certificate.encode())[0]
    except ValueError:
        yield FieldError(
            place_of("certificate"),
            "bad-format",
            "Invalid value: the client certificate cannot be read",
            "a certificate in PEM format",
        )
    try:
        private = load_pem_private_key(key.encode(), None)
    except TypeError:
        yield FieldError(
            place_of("key"),
            "bad-format",
            "Invalid value: the client key is encrypted",
            "a key without a password, in PEM format",
        )
    except (ValueError, UnsupportedAlgorithm):
        message = "Invalid value: the client key cannot be read"
        yield FieldError(place_of("key"), "bad-format", message, "a key in PEM format")
    if first is None or private is None:
        return
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if first.public_key().public_bytes(*form) != private.public_key().public_bytes(
        *form
    ):
        yield FieldError(
            place_of("key"),
            "bad-format",
            "Invalid value: the client key does not match the client certificate",
            "the key of the certificate",
        )
    elif first.not_valid_after_utc <= now:
        yield FieldError(
            place_of("certificate"),
            "expired",
            f"Invalid value: the client certificate expired on {first.not_valid_after_utc:%Y-%m-%d}",
            "a certificate that is valid now",
        )


def _chosen_entries(document: object, context: str, path: str) -> tuple[Entry, Entry]:
    """Return the cluster and the user of a context; of several one has to be named. Raise InvalidManifest.

    The current one is often not the one that is meant, and its credentials would be stored.
    """
    if not isinstance(document, Mapping):
        raise InvalidManifest.of(
            path, "wrong-type", "Invalid value: must be a kubeconfig", "an object"
        )
    contexts = _names(document.get("contexts"))
    names = ", ".join(contexts)
    name: object = context
    keys: tuple[str | int, ...] = ("context",)
    if not context and len(set(contexts)) > 1:
        message = "Required value: the kubeconfig has several contexts"
        raise InvalidManifest.of("context", "required", message, names)
    if not context:
        name, keys = document.get("current-context"), (path, "current-context")
    if not isinstance(name, str) or not name:
        raise InvalidManifest.of(
            format_path(keys), "bad-reference", "Required value: name a context", names
        )
    place, chosen = _entry(document, "contexts", "context", name, keys, path)
    cluster = _entry(
        document,
        "clusters",
        "cluster",
        chosen.get("cluster"),
        (*place, "cluster"),
        path,
    )
    user = _entry(document, "users", "user", chosen.get("user"), (*place, "user"), path)
    return cluster, user


def _names(entries: object) -> list[str]:
    if not isinstance(entries, list):
        return []
    return [
        str(entry["name"])
        for entry in entries
        if isinstance(entry, Mapping) and entry.get("name")
    ]


def _entry(
    document: Mapping[str, Any],
    plural: str,
    kind: str,
    name: object,
    keys: Sequence[str | int],
    path: str,
) -> Entry:
    """Return the keys and the content of a named entry; `keys` is the place that refers to it."""
    names = _names(document.get(plural))
    if not isinstance(name, str) or name not in names:
        problem = (
            f"Not found: {kind} {quote_value(name)}"
            if name
            else f"Required value: name a {kind}"
        )
        raise InvalidManifest.of(
            format_path(keys), "bad-reference", problem, ", ".join(names)
        )
    for plural_name in names:
        if names.count(plural_name) > 1:
            problem = f"Two entries have the name {quote_value(plural_name)}"
            raise InvalidManifest.of(
                format_path((path, plural)), "bad-reference", problem, "different names"
            )
    rows: list[Any] = document[plural]
    at = next(
        at
        for at, row in enumerate(rows)
        if isinstance(row, Mapping) and row.get("name") == name
    )
    content = rows[at].get(kind)
    place = (path, plural, at, kind)
    if not isinstance(content, Mapping):
        raise InvalidManifest.of(
            format_path(place), "wrong-type", f"Required value: the {kind}", "an object"
        )
    return place, content


def _unsupported(
    content: Mapping[str, Any], keys: Sequence[str | int]
) -> Iterator[FieldError]:
    for key, message in _NOT_SUPPORTED.items():
        if content.get(key) not in (None, "", [], {}):
            words = message.format(key=key)
            yield FieldError(
                format_path((*keys, key)), "not-supported", f"Not supported: {words}"
            )
