"""Parsing of the manifests of resources on the hub cluster (`rules/lifecycle.md#resource-selection`)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field

from fleetui.apimachinery import fields
from fleetui.apimachinery.errors import (
    ErrorDetail,
    FieldError,
    InvalidManifest,
    format_path,
)
from fleetui.apimachinery.fields import (
    WRITTEN_BY_A_HUB,
    Annotations,
    FilledText,
    Labels,
    pattern,
)
from fleetui.apimachinery.kinds import (
    CLUSTER_ENVELOPE_KIND,
    CLUSTER_SCOPED,
    ENVELOPE_KIND,
    ENVELOPE_VERSION,
    KindScope,
    is_envelope,
    refuse_fleet_kinds,
    scope_of,
)
from fleetui.apimachinery.model import (
    DEFAULT_SEMANTICS,
    ManifestModel,
    Raw,
    mapping_at,
    parse_manifest,
    quote_value,
    required,
)
from fleetui.apimachinery.secrets import HubObject, canonical_json, refuse_hidden
from placements.engine.envelopes import MOST_WRAPPED
from placements.manifests.placement import is_reserved_namespace

__all__ = ["LARGEST_OBJECT", "HubObject", "parse_hub_object"]

LARGEST_OBJECT = 3 * 512 * 1024
_MEBIBYTE = 1024 * 1024
_RUNS_ON_THE_HUB = frozenset({("", "Pod"), ("apps", "ReplicaSet")})


class _NameRule(NamedTuple):
    problem_of: Callable[[str], fields.NameProblem | None]
    allowed: str


_SUBDOMAIN = _NameRule(fields.subdomain_problem, f"at most 253 {fields.DNS_SUBDOMAIN}")
_PATH_SEGMENT = _NameRule(fields.object_name_problem, fields.OBJECT_NAME)
_NAME_RULES = {
    ("", "Namespace"): _NameRule(fields.dns_label_problem, fields.DNS_LABEL),
    ("", "Service"): _NameRule(fields.service_name_problem, fields.SERVICE_NAME),
    ("apiregistration.k8s.io", "APIService"): _PATH_SEGMENT,
    ("certificates.k8s.io", "CertificateSigningRequest"): _PATH_SEGMENT,
    ("certificates.k8s.io", "ClusterTrustBundle"): _PATH_SEGMENT,
    ("networking.k8s.io", "IPAddress"): _PATH_SEGMENT,
    ("rbac.authorization.k8s.io", "ClusterRole"): _PATH_SEGMENT,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _PATH_SEGMENT,
    ("rbac.authorization.k8s.io", "Role"): _PATH_SEGMENT,
    ("rbac.authorization.k8s.io", "RoleBinding"): _PATH_SEGMENT,
}


def parse_hub_object(document: object) -> HubObject:
    """Parse any Kubernetes object and keep its manifest. Raise InvalidManifest.

    For one of Fleet's own kinds that is the only error. What an envelope wraps is parsed, too.
    """
    refuse_fleet_kinds(document)
    parse_manifest(
        _Manifest, document, semantics=DEFAULT_SEMANTICS, path="", whole=whole_problems
    )
    hub_object = HubObject.of(mapping_at(document))
    refuse_hidden(hub_object.content)
    if is_envelope(hub_object.api_version, hub_object.kind):
        wrapped = hub_object.content["data"].items()
        if errors := [
            error
            for key, one in wrapped
            for error in _wrapped_errors(key, one, hub_object)
        ]:
            raise InvalidManifest(errors)
    return hub_object


def _wrapped_errors(
    key: str, document: object, envelope: HubObject
) -> Iterator[FieldError]:
    """Yield the errors of one object in an envelope, which has to be where the envelope is.

    See `rules/lifecycle.md#envelopes`.
    """
    path = format_path(("data", key))
    try:
        refuse_fleet_kinds(document)
        parse_manifest(_Wrapped, document, semantics=DEFAULT_SEMANTICS, path=path)
    except InvalidManifest as invalid:
        yield from (
            error
            if error.path.startswith(path)
            else replace(error, path=f"{path}.{error.path}")
            for error in invalid.errors
        )
        return
    one = HubObject.of(mapping_at(document))
    place = f"{path}.metadata.namespace"
    if is_envelope(one.api_version, one.kind):
        message = "Forbidden: an envelope cannot be in another one"
        yield FieldError(
            f"{path}.kind", "kind-not-supported", message, "objects to place"
        )
    elif envelope.namespace and one.namespace != envelope.namespace:
        message = f"must be that of the envelope, which wraps objects of {envelope.namespace} only"
        yield FieldError(place, "conflict", message, envelope.namespace)
    elif one.namespace and not envelope.namespace:
        message = (
            f"Forbidden: a {CLUSTER_ENVELOPE_KIND} wraps cluster-scoped objects only"
        )
        yield FieldError(
            place, "misplaced", message, f"no namespace, or a {ENVELOPE_KIND}"
        )


def whole_problems(document: object) -> Iterator[ErrorDetail]:
    yield from size_problems(document)
    raw = mapping_at(document)
    if is_envelope(raw.get("apiVersion"), raw.get("kind")):
        yield from _envelope_problems(raw)


def size_problems(document: object) -> Iterator[ErrorDetail]:
    if (size := len(canonical_json(document))) > LARGEST_OBJECT:
        message = (
            f"Too large: {size / _MEBIBYTE:.2f} MiB as compact JSON ({size} bytes)"
        )
        yield ErrorDetail(
            (), "too-large", message, f"at most 1.5 MiB ({LARGEST_OBJECT} bytes)"
        )
        return
    raw = mapping_at(document)
    if (raw.get("apiVersion"), raw.get("kind")) not in (
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
    ):
        return
    # API servers count the values, those in base64 decoded.
    encoded = ("binaryData",) if raw["kind"] == "ConfigMap" else ("data",)
    size = sum(
        len(value.encode()) * (3 if key in encoded else 4) // 4
        for key in ("data", "stringData", "binaryData")
        for value in mapping_at(raw.get(key)).values()
        if isinstance(value, str)
    )
    if size > _MEBIBYTE:
        message = f"Too large: the values of a {raw['kind']} have {size / _MEBIBYTE:.2f} MiB ({size} bytes)"
        yield ErrorDetail(
            ("data",),
            "too-large",
            message,
            f"at most 1 MiB ({_MEBIBYTE} bytes) in one object",
        )


class _Metadata(ManifestModel):
    """Name, namespace, labels and annotations of an object; what a hub adds on its own is accepted."""

    ignored_fields: ClassVar[frozenset[str]] = WRITTEN_BY_A_HUB

    name: FilledText
    namespace: Annotated[
        str, pattern(fields.dns_label_problem, fields.DNS_LABEL, filled_in=False)
    ] = ""
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)


class _Manifest(ManifestModel):
    """The fields that every Kubernetes object has; the rest is checked by the clusters."""

    allow_unknown: ClassVar[bool] = True
    is_on_hub: ClassVar[bool] = True

    api_version: Annotated[str, pattern(fields.api_version_problem, fields.API_VERSION)]
    kind: Annotated[str, pattern(fields.kind_problem, "a kind such as Deployment")]
    metadata: _Metadata

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """What depends on the kind: its name, its scope, whether the hub accepts it."""
        version, kind = raw.get("apiVersion"), raw.get("kind")
        metadata = mapping_at(raw, "metadata")
        if metadata.get("generateName") and not metadata.get("name"):
            message = "Forbidden: generated names are not supported; set metadata.name"
            yield ErrorDetail(
                ("metadata", "generateName"), "not-supported", message, "name"
            )
        if isinstance(version, str) and isinstance(kind, str):
            group = version.rpartition("/")[0]

            # What would run on the hub itself stays off it (`rules/lifecycle.md#envelopes`).
            if (group, kind) == ("", "List"):
                message = "Forbidden: a List must be applied as single objects"
                yield ErrorDetail(
                    ("kind",), "kind-not-supported", message, "one object"
                )
            namespace = metadata.get("namespace")
            is_reserved = isinstance(namespace, str) and is_reserved_namespace(
                namespace
            )
            if cls.is_on_hub and (group, kind) in _RUNS_ON_THE_HUB and not is_reserved:
                reason = (
                    "would run on the hub itself; place its owner, such as a Deployment"
                )
                message, allowed = (
                    f"Forbidden: {kind} {reason}",
                    "kinds that do not run on the hub",
                )
                yield ErrorDetail(("kind",), "kind-not-supported", message, allowed)

            name, rule = (
                metadata.get("name"),
                _NAME_RULES.get((group, kind), _SUBDOMAIN),
            )
            if isinstance(name, str) and name and (problem := rule.problem_of(name)):
                message = f"Invalid value: {quote_value(name)}: {problem.words}"
                yield ErrorDetail(
                    ("metadata", "name"), problem.code, message, rule.allowed
                )
            yield from (
                problem.under("metadata")
                for problem in _scope_problems(group, kind, metadata)
            )


class _Wrapped(_Manifest):
    """An object in an envelope, which does not run on the hub."""

    is_on_hub: ClassVar[bool] = False


def _envelope_problems(raw: Raw) -> Iterator[ErrorDetail]:
    """Check version and size of an envelope; what it wraps is checked object by object."""
    if raw.get("apiVersion") != ENVELOPE_VERSION:
        message = f"Unsupported value: {quote_value(raw.get('apiVersion'))}"
        yield ErrorDetail(
            ("apiVersion",), "api-version-not-supported", message, ENVELOPE_VERSION
        )
    data, allowed = raw.get("data"), f"1 to {MOST_WRAPPED} objects by key"
    if data is None:
        yield required("data", "Required value", allowed)
    elif not isinstance(data, Mapping):
        yield ErrorDetail(
            ("data",), "wrong-type", "Invalid value: must be an object", allowed
        )
    elif not 1 <= len(data) <= MOST_WRAPPED:
        code = "too-many" if data else "too-few"
        yield ErrorDetail(("data",), code, f"has {len(data)} objects", allowed)


def _scope_problems(group: str, kind: str, metadata: Raw) -> Iterator[ErrorDetail]:
    """Check the namespace against the kind; for kinds that are not built in, the manifest decides."""
    scope, namespace = scope_of(group, kind), metadata.get("namespace")
    if scope is KindScope.NAMESPACED and (namespace is None or namespace == ""):
        message = f"{kind} is namespaced, and no namespace is assumed"
        yield required("namespace", message, "the name of a namespace")
    if scope is KindScope.CLUSTER and namespace:
        yield ErrorDetail(("namespace",), "misplaced", CLUSTER_SCOPED)
