"""The types of manifest fields, with the syntax of Kubernetes names, durations and object metadata."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from fleetui.apimachinery.errors import ErrorDetail, FieldError
from fleetui.apimachinery.kinds import (
    ALPHA_VERSION,
    CLUSTER_SCOPED,
    PLACEMENT_VERSIONS,
    refuse_other_kinds,
)
from fleetui.apimachinery.model import (
    DEFAULT_SEMANTICS,
    ManifestModel,
    UnsupportedField,
    failure,
    mapping_at,
    parse_manifest,
    problems_in,
    quote_value,
    wrong_type,
)
from fleetui.apimachinery.quantity import QuantityError, parse_quantity
from fleetui.apimachinery.secrets import SERVER_METADATA
from fleetui.apimachinery.words import UNIT_SECONDS, full_name

DNS_SUBDOMAIN = 'lower-case letters, digits, "-" and ".", starting and ending with a letter or digit'
NAME_PART = 'at most 63 letters, digits, "-", "_" and ".", starting and ending with a letter or digit'
LABEL_KEY = f"[DNS name/]name; the name: {NAME_PART}"
LABEL_VALUE = f"empty, or {NAME_PART}"
RESOURCE_PROPERTY = (
    "resources.kubernetes-fleet.io/<total|allocatable|available>-<resource>"
)
PROPERTY_NAME = f"{RESOURCE_PROPERTY}, or a name such as example.com/cost"
DNS_LABEL = 'at most 63 lower-case letters, digits and "-", starting and ending with a letter or digit'
SERVICE_NAME = 'at most 63 lower-case letters, digits and "-", starting with a letter, ending with a letter or digit'
API_VERSION = "v1, or a group and a version such as apps/v1"
OBJECT_NAME = 'up to 253 characters without "/", "%" and spaces, not "." or ".."'


class NameProblem(NamedTuple):
    """The error of a name: a stable code, and words that follow the name."""

    code: str
    words: str


_RESOURCE_PREFIX = "resources.kubernetes-fleet.io/"
LONGEST_PART = 63
_LONGEST_SUBDOMAIN = 253
_SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_OBJECT_NAME = re.compile(r"[^/%\s]+")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_VERSION = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def _bad(words: str) -> NameProblem:
    return NameProblem("bad-format", words)


def syntax_problem(
    text: str, syntax: re.Pattern[str], longest: int, words: str
) -> NameProblem | None:
    if len(text) > longest:
        return NameProblem(
            "too-long", f"must be no more than {longest} characters, not {len(text)}"
        )
    return None if syntax.fullmatch(text) else _bad(words)


# DNS-1123.
subdomain_problem = partial(
    syntax_problem,
    syntax=_SUBDOMAIN,
    longest=_LONGEST_SUBDOMAIN,
    words="must be a DNS name",
)
# DNS-1123, the syntax of namespaces.
dns_label_problem = partial(
    syntax_problem, syntax=_LABEL, longest=LONGEST_PART, words="must be a DNS label"
)


def service_name_problem(text: str) -> NameProblem | None:
    """Return why a text is no DNS-1035 label, the syntax of services."""
    if text[:1].isdigit():
        return _bad("must not start with a digit")
    return dns_label_problem(text)


def label_key_problem(text: str) -> NameProblem | None:
    """Return why a text is no qualified name, the syntax of label, taint and toleration keys."""
    prefix, slash, name = text.rpartition("/")
    if slash and subdomain_problem(prefix):
        return _bad('must have a DNS name before the "/"')
    return _part_problem(name)


def label_value_problem(text: str) -> NameProblem | None:
    return _part_problem(text) if text else None


def _part_problem(text: str) -> NameProblem | None:
    if len(text) > LONGEST_PART:
        return NameProblem(
            "too-long",
            f"must have parts of no more than {LONGEST_PART} characters, not {len(text)}",
        )
    words = 'must consist of letters, digits, "-", "_" and ".", with a letter or digit at both ends'
    return None if _PART.fullmatch(text) else _bad(words)


def property_name_problem(text: str) -> NameProblem | None:
    """Return why a text names no property: reported resource usage, a qualified name, or a longer path."""
    if text.startswith(_RESOURCE_PREFIX):
        sort, dash, resource = text.removeprefix(_RESOURCE_PREFIX).partition("-")
        if (
            not dash
            or not resource
            or sort not in ("total", "allocatable", "available")
        ):
            return _bad("must name total, allocatable or available, and a resource")
        # The whole name is a qualified name, so that the resource has no "/".
        return _part_problem(text.removeprefix(_RESOURCE_PREFIX))
    prefix, *parts = text.split("/")
    if not parts:
        return _part_problem(prefix)
    if subdomain_problem(prefix):
        return _bad('must have a DNS name before the first "/"')
    return next(filter(None, map(_part_problem, parts)), None)


def has_second_dash(name: str) -> bool:
    """Return whether a property names a resource with a dash, such as ephemeral-storage.

    KubeFleet splits such a name at every dash and cannot read it.
    """
    return (
        name.startswith(_RESOURCE_PREFIX)
        and name.removeprefix(_RESOURCE_PREFIX).count("-") > 1
    )


def object_name_problem(text: str) -> NameProblem | None:
    fits = (
        len(text) <= _LONGEST_SUBDOMAIN
        and text not in (".", "..")
        and _OBJECT_NAME.fullmatch(text)
    )
    return None if fits else _bad("must be a valid object name")


def group_problem(text: str) -> NameProblem | None:
    """Return why a text is no API group; the empty one is the core group."""
    return subdomain_problem(text) if text else None


def _part_syntax_problem(
    text: str, syntax: re.Pattern[str], words: str
) -> NameProblem | None:
    if len(text) <= LONGEST_PART and syntax.fullmatch(text):
        return None
    return _bad(words)


version_problem = partial(
    _part_syntax_problem, syntax=_VERSION, words="must be an API version"
)
kind_problem = partial(_part_syntax_problem, syntax=_KIND, words="must be a kind")


def api_version_problem(text: str) -> NameProblem | None:
    """Return why a text is no `apiVersion`: a group and a version, or a version alone."""
    group, slash, version = text.rpartition("/")
    if slash and (not group or group_problem(group)):
        return _bad('must have an API group before the "/"')
    return version_problem(version)


_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
INT32_MAX = 2**31 - 1
_LONGEST_CLUSTER_NAME = 63


def refusal(code: str, message: str, allowed: str = "") -> ValidationError:
    return failure([ErrorDetail((), code, message, allowed)])


def text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise failure([wrong_type(value, "text")])


def flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise failure([wrong_type(value, "true or false")])


def non_empty(value: object) -> str:
    content = text(value)
    if not content:
        raise refusal("required", "Required value", "non-empty text")
    return content


def integer(low: int, high: int = INT32_MAX) -> BeforeValidator:
    published = Annotated[int, Field(ge=low, le=high)]
    return BeforeValidator(
        lambda value: whole_number(value, low, high), json_schema_input_type=published
    )


def whole_number(value: object, low: int, high: int) -> int:
    """Return value as an int. Raise an error if it is not an integer in [low, high]."""
    allowed = f"an integer from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise failure([wrong_type(value, allowed)])
    if not low <= value <= high:
        bound = (
            f"greater than or equal to {low}"
            if value < low
            else f"less than or equal to {high}"
        )
        raise refusal(
            "out-of-range", f"Invalid value: {value}: must be {bound}", allowed
        )
    return value


def one_of(
    closed: type[StrEnum], *, hints: Mapping[str, str] | None = None
) -> BeforeValidator:
    """Return a validator for the members of an enum; hints are messages for well-known wrong values."""
    members = {str(member): member for member in closed}
    return BeforeValidator(partial(_choice, members, ", ".join(closed), hints or {}))


def literal(*allowed: str) -> BeforeValidator:
    listing = ", ".join(word or "nothing" for word in allowed)
    check = partial(_choice, {word: word for word in allowed}, listing, {})
    return BeforeValidator(check, json_schema_input_type=_published(allowed))


def _choice(
    members: Mapping[str, str], allowed: str, hints: Mapping[str, str], value: object
) -> str:
    word = text(value)
    if word not in members:
        message = hints.get(word) or f"Unsupported value: {quote_value(word)}"
        raise refusal("not-one-of", message, allowed)
    return members[word]


def api_version(*supported: str) -> BeforeValidator:
    def check(value: object) -> str:
        content = non_empty(value)
        if content not in supported:
            raise refusal(
                "api-version-not-supported",
                f"Unsupported value: {quote_value(content)}",
                " or ".join(supported),
            )
        return content

    return BeforeValidator(check, json_schema_input_type=_published(supported))


def _published(allowed: tuple[str, ...]) -> Any:
    return Annotated[str, WithJsonSchema({"type": "string", "enum": list(allowed)})]


def pattern(
    problem_of: Callable[[str], NameProblem | None],
    allowed: str,
    *,
    filled_in: bool = True,
) -> BeforeValidator:
    """Return a validator for text of a certain syntax; it may be empty unless `filled_in`."""

    def check(value: object) -> str:
        content = non_empty(value) if filled_in else text(value)
        problem = problem_of(content) if content else None
        if problem:
            raise refusal(
                problem.code,
                f"Invalid value: {quote_value(content)}: {problem.words}",
                allowed,
            )
        return content

    return BeforeValidator(check)


def list_of(
    *, low: int = 0, high: int | None = None, ours: bool = False
) -> WrapValidator:
    """Return a validator for lists of low to high items; items over the limit are not validated."""

    def check(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        if not isinstance(value, (list, tuple)):
            raise failure([wrong_type(value, "a list")])
        problems, count = [], len(value)
        allowed = f"{low} to {high} items" if low != high else f"exactly {low}"
        if count < low:
            message = f"Too few: {count}: must have at least {low} item{'s' if low > 1 else ''}"
            problems.append(ErrorDetail((), "too-few", message, allowed))
        if high is not None and count > high:
            whose = " (a limit of this console)" if ours else ""
            message = f"Too many: {count}: must have at most {high} items{whose}"
            problems.append(ErrorDetail((), "too-many", message, allowed))
        try:
            content = handler(tuple(value[:high]))
        except ValidationError as error:
            problems += problems_in(error)
        if problems:
            raise failure(problems)
        return content

    return WrapValidator(check)


def mapping(value: object, expected: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise failure([wrong_type(value, expected)])


def _labels(value: object) -> dict[str, str]:
    problems = []
    labels = dict(mapping(value, "an object of label keys and values"))
    for key, label in labels.items():
        if problem := label_key_problem(key):
            problems.append(
                ErrorDetail(
                    (key,), problem.code, f"Invalid key: {problem.words}", LABEL_KEY
                )
            )
        if not isinstance(label, str):
            problems.append(wrong_type(label, "text").under(key))
        elif problem := label_value_problem(label):
            problems.append(
                ErrorDetail(
                    (key,),
                    problem.code,
                    f"Invalid value: {quote_value(label)}: {problem.words}",
                    LABEL_VALUE,
                )
            )
    if problems:
        raise failure(problems)
    return labels


def annotations(value: object) -> dict[str, str]:
    """Return an object of texts whose keys are qualified names. Raise an error for anything else."""
    texts = dict(mapping(value, "an object of texts"))
    odd = [(key, item) for key, item in texts.items() if not isinstance(item, str)]
    if odd:
        raise failure(wrong_type(item, "text").under(key) for key, item in odd)
    for key in texts:
        if problem := label_key_problem(key.lower()):
            raise failure(
                [
                    ErrorDetail(
                        (key,), problem.code, f"Invalid key: {problem.words}", LABEL_KEY
                    )
                ]
            )
    return texts


def quantities(value: object) -> dict[str, str]:
    """Return an object of texts and numbers, as YAML holds quantities, with the numbers as text."""
    items = mapping(value, "an object of quantities")
    texts = {
        key: text for key, item in items.items() if (text := written(item)) is not None
    }
    if len(texts) < len(items):
        raise failure(
            wrong_type(items[key], "a quantity").under(key)
            for key in items
            if key not in texts
        )
    return texts


def written(value: object) -> str | None:
    """Return a quantity as text, None if it is neither text nor a number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return repr(value)


def _quantity(value: object) -> str:
    quantity = text(value)
    try:
        parse_quantity(quantity)
    except QuantityError as error:
        raise refusal(
            "bad-format",
            f"Invalid value: {quote_value(quantity)}: must be a Kubernetes quantity",
            "a number such as 4, 0.5, 500m, 1Gi or 1E3",
        ) from error
    return quantity


def _moment(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        with suppress(ValueError):
            return datetime.fromisoformat(value.upper())
    raise refusal(
        "bad-format",
        f"Invalid value: {quote_value(value)}: must be a time",
        "a time such as 2026-08-20T12:00:00Z",
    )


Text: TypeAlias = Annotated[str, BeforeValidator(text)]
FilledText: TypeAlias = Annotated[str, BeforeValidator(non_empty)]
Flag: TypeAlias = Annotated[bool, BeforeValidator(flag)]
QuantityText: TypeAlias = Annotated[str, BeforeValidator(_quantity)]
LabelKey: TypeAlias = Annotated[str, pattern(label_key_problem, LABEL_KEY)]
LabelValue: TypeAlias = Annotated[
    str, pattern(label_value_problem, LABEL_VALUE, filled_in=False)
]
PropertyName: TypeAlias = Annotated[str, pattern(property_name_problem, PROPERTY_NAME)]
cluster_name_problem = partial(subdomain_problem, longest=_LONGEST_CLUSTER_NAME)
"""Return why a text is no name of a cluster, or None."""
ClusterName: TypeAlias = Annotated[
    str,
    pattern(
        cluster_name_problem,
        f"at most {_LONGEST_CLUSTER_NAME} {DNS_SUBDOMAIN}",
    ),
]
Moment: TypeAlias = Annotated[datetime, BeforeValidator(_moment)]
Labels: TypeAlias = Annotated[dict[str, str], BeforeValidator(_labels)]
Annotations: TypeAlias = Annotated[dict[str, str], BeforeValidator(annotations)]
OptionalLabelKey: TypeAlias = Annotated[
    str, pattern(label_key_problem, f"empty, or {LABEL_KEY}", filled_in=False)
]


_ALLOWED = "a duration such as 30s, 15m or 1h30m, at most 8760h"
_LONGEST = timedelta(hours=8760)
_DURATION_PART = re.compile(
    r"([0-9]{1,12}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(ns|us|µs|μs|ms|s|m|h)"
)
_MICROSECONDS: dict[str, int | Fraction] = {
    "ns": Fraction(1, 1000),
    "us": 1,
    "µs": 1,
    "μs": 1,
    "ms": 1000,
    **{unit: UNIT_SECONDS[unit] * 10**6 for unit in "smh"},
}


def parse_duration(text: str) -> timedelta:
    """Return a duration, rounded up to microseconds. Raise ValueError for text that is none."""
    parts = list(_DURATION_PART.finditer(text))
    if not parts or "".join(part.group() for part in parts) != text:
        raise ValueError(f"not a duration: {text!r}")
    total = sum(Fraction(part[1]) * _MICROSECONDS[part[2]] for part in parts)
    try:
        return timedelta(microseconds=-int(-total // 1))
    except OverflowError as error:
        raise ValueError(f"not a duration: {text!r}") from error


def _positive(value: object) -> str:
    content = non_empty(value)
    try:
        duration = parse_duration(content)
    except ValueError as error:
        message = f"Invalid value: {quote_value(content)}: must be a duration"
        raise refusal("bad-format", message, _ALLOWED) from error
    if not timedelta(0) < duration <= _LONGEST:
        message = f"Invalid value: {quote_value(content)}: must be greater than 0 and at most 8760h"
        raise refusal("out-of-range", message, _ALLOWED)
    return content


DurationText: TypeAlias = Annotated[str, BeforeValidator(_positive)]


WRITTEN_BY_A_HUB = frozenset({*SERVER_METADATA, "finalizers", "generateName"})


class ObjectMeta(ManifestModel):
    """Name, labels and annotations; what a hub adds on its own is accepted and dropped."""

    ignored_fields: ClassVar[frozenset[str]] = WRITTEN_BY_A_HUB
    refused: ClassVar[Mapping[str, UnsupportedField]] = {
        "namespace": UnsupportedField("misplaced", CLUSTER_SCOPED)
    }

    name: ClusterName
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)


Name: TypeAlias = Annotated[
    str, pattern(subdomain_problem, f"at most 253 {DNS_SUBDOMAIN}")
]
Namespace: TypeAlias = Annotated[str, pattern(dns_label_problem, DNS_LABEL)]
WithAlpha: TypeAlias = Annotated[str, api_version(*PLACEMENT_VERSIONS, ALPHA_VERSION)]


class NamespacedMeta(ObjectMeta):
    refused: ClassVar[Mapping[str, UnsupportedField]] = {}

    namespace: Namespace


class FleetDocument(ManifestModel):
    """A whole document, whose class is named as its kind; its status is accepted and left aside."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset({"status"})

    api_version: Annotated[str, api_version(*PLACEMENT_VERSIONS)]
    kind: str
    metadata: ObjectMeta

    @property
    def namespace(self) -> str:
        return str(getattr(self.metadata, "namespace", ""))

    @property
    def full_name(self) -> str:
        return full_name(self.namespace, self.metadata.name)

    def to_manifest(self) -> dict[str, Any]:
        """Return the manifest to export; parsing it results in an equal value."""
        return self.to_plain()


Document = TypeVar("Document", bound=FleetDocument)


def parse_document(
    model: type[Document], document: object, *, namespaced: type[Document] | None = None
) -> Document:
    """Parse a manifest. Raise InvalidManifest; only one error for another kind.

    `namespaced` is the model of the objects inside namespaces; their kind has no `Cluster` in front.
    """
    models = {model.__name__: model}
    if namespaced:
        models[model.__name__.removeprefix("Cluster")] = namespaced
    refuse_other_kinds(document, *models)
    chosen = models.get(str(mapping_at(document).get("kind")), model)
    return parse_manifest(chosen, document, semantics=DEFAULT_SEMANTICS, path="")


def immutable_errors(
    before: FleetDocument, after: FleetDocument, *paths: tuple[str, ...]
) -> Iterator[FieldError]:
    """Yield an error for every change at these paths of a saved manifest."""
    old, new = before.to_manifest(), after.to_manifest()
    for keys in paths:
        was, becomes = (mapping_at(raw, *keys[:-1]).get(keys[-1]) for raw in (old, new))
        if was != becomes:
            allowed = "nothing" if was is None else str(was)
            yield FieldError(
                ".".join(keys), "immutable", "Forbidden: field is immutable", allowed
            )
