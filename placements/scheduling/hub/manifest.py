"""The one door for resources on the hub: `parse_manifest` (`spec/lifecycle.md` A.16, B.1.10, B.2)."""

from collections.abc import Callable, Iterator
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field

from placements.scheduling.door import names
from placements.scheduling.door.builtin_kinds import KindScope, scope_of
from placements.scheduling.door.fields import Annotations, FilledText, Labels, spelled
from placements.scheduling.door.kinds import refuse_fleet_kinds
from placements.scheduling.door.metadata import WRITTEN_BY_A_HUB
from placements.scheduling.door.parsing import Parsed, Raw, mapping_at, parse_model, shown
from placements.scheduling.door.resource_selectors import is_reserved_namespace
from placements.scheduling.faults import Problem
from placements.scheduling.hub.objects import HubObject, canonical_json
from placements.scheduling.semantics import DEFAULT_SEMANTICS

__all__ = ["LARGEST_OBJECT", "HubObject", "parse_manifest"]

LARGEST_OBJECT = 3 * 512 * 1024
_MEBIBYTE = 1024 * 1024
_RUNS_ON_THE_HUB = frozenset({("", "Pod"), ("apps", "ReplicaSet")})


class _NameRule(NamedTuple):
    problem_of: Callable[[str], names.NameProblem | None]
    allowed: str


_SUBDOMAIN = _NameRule(names.subdomain_problem, f"at most 253 {names.DNS_SUBDOMAIN}")
_PATH_SEGMENT = _NameRule(names.object_name_problem, names.OBJECT_NAME)
_NAME_RULES = {
    ("", "Namespace"): _NameRule(names.dns_label_problem, names.DNS_LABEL),
    ("", "Service"): _NameRule(names.service_name_problem, names.SERVICE_NAME),
    ("apiregistration.k8s.io", "APIService"): _PATH_SEGMENT,
    ("certificates.k8s.io", "CertificateSigningRequest"): _PATH_SEGMENT,
    ("certificates.k8s.io", "ClusterTrustBundle"): _PATH_SEGMENT,
    ("networking.k8s.io", "IPAddress"): _PATH_SEGMENT,
    ("rbac.authorization.k8s.io", "ClusterRole"): _PATH_SEGMENT,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _PATH_SEGMENT,
    ("rbac.authorization.k8s.io", "Role"): _PATH_SEGMENT,
    ("rbac.authorization.k8s.io", "RoleBinding"): _PATH_SEGMENT,
}


def parse_manifest(document: object) -> HubObject:
    """Turn any Kubernetes object into a value that keeps its document; raise Faults with all that is wrong.

    A document of one of Fleet's own kinds has that one fault only.
    """
    refuse_fleet_kinds(document)
    parse_model(_Manifest, document, semantics=DEFAULT_SEMANTICS, path="", whole=_size_problems)
    return HubObject.of(mapping_at(document))


def _size_problems(document: object) -> Iterator[Problem]:
    size = len(canonical_json(document))
    if size > LARGEST_OBJECT:
        message = f"takes {size / _MEBIBYTE:.2f} MiB as compact JSON ({size} bytes)"
        yield Problem((), "too-large", message, f"at most 1.5 MiB ({LARGEST_OBJECT} bytes)")


def _optional_namespace_problem(text: str) -> names.NameProblem | None:
    return names.dns_label_problem(text) if text else None


class _Metadata(Parsed):
    """What an object is called; what a hub adds on its own is accepted."""

    noun: ClassVar[str] = "document's metadata"
    left_aside: ClassVar[frozenset[str]] = WRITTEN_BY_A_HUB

    name: FilledText
    namespace: Annotated[str, spelled(_optional_namespace_problem, names.DNS_LABEL, filled_in=False)] = ""
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)


class _Manifest(Parsed):
    """What every Kubernetes object has; the rest is the business of the clusters that get it."""

    noun: ClassVar[str] = "manifest"
    takes_unknown: ClassVar[bool] = True

    api_version: Annotated[str, spelled(names.api_version_problem, names.API_VERSION)]
    kind: Annotated[str, spelled(names.kind_problem, "a kind such as Deployment")]
    metadata: _Metadata

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """What depends on the kind: its name, where it lives, whether the hub takes it."""
        version, kind = raw.get("apiVersion"), raw.get("kind")
        metadata = mapping_at(raw, "metadata")
        if metadata.get("generateName") and not metadata.get("name"):
            message = "would have the hub make up a name; every object has its own here"
            yield Problem(("metadata", "generateName"), "not-supported", message, "name")
        if isinstance(version, str) and isinstance(kind, str):
            group = version.rpartition("/")[0]
            yield from _kind_problems(group, kind, metadata)
            yield from (problem.under("metadata") for problem in _name_problems(group, kind, metadata))
            yield from (problem.under("metadata") for problem in _scope_problems(group, kind, metadata))


def _kind_problems(group: str, kind: str, metadata: Raw) -> Iterator[Problem]:
    """What would run on the hub itself stays off it (lifecycle B.1.10)."""
    if (group, kind) == ("", "List"):
        message = "List: holds several objects; each is applied on its own"
        yield Problem(("kind",), "kind-not-supported", message, "one object")
    namespace = metadata.get("namespace")
    is_reserved = isinstance(namespace, str) and is_reserved_namespace(namespace)
    if (group, kind) in _RUNS_ON_THE_HUB and not is_reserved:
        message = f"{kind}: would run on the hub itself; place what makes it, such as a Deployment"
        yield Problem(("kind",), "kind-not-supported", message, "kinds that do not run on the hub")


def _name_problems(group: str, kind: str, metadata: Raw) -> Iterator[Problem]:
    name = metadata.get("name")
    if isinstance(name, str) and name:
        rule = _NAME_RULES.get((group, kind), _SUBDOMAIN)
        problem = rule.problem_of(name)
        if problem:
            yield Problem(("name",), problem.code, f"{shown(name)} {problem.words}", rule.allowed)


def _scope_problems(group: str, kind: str, metadata: Raw) -> Iterator[Problem]:
    """A namespace stands where the kind has one; of kinds that are not built in, the document tells."""
    scope, namespace = scope_of(group, kind), metadata.get("namespace")
    if scope is KindScope.NAMESPACED and (namespace is None or namespace == ""):
        message = f"is missing; {kind} lives inside namespaces, and none is assumed"
        yield Problem(("namespace",), "required", message, "the name of a namespace")
    if scope is KindScope.CLUSTER and namespace:
        yield Problem(("namespace",), "misplaced", "this kind lives outside namespaces; leave it out")
