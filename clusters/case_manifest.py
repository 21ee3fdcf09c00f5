"""Clusters in the form of `docs/reference/cases.md`, for simulations, and without pydantic for speed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from clusters.fleet import (
    ELIGIBLE,
    NO_SCHEDULE,
    NO_USAGE,
    Cluster,
    Eligibility,
    EligibilityKind,
    ResourceUsage,
    Taint,
)
from fleetui.apimachinery.errors import ErrorDetail, faults_of
from fleetui.apimachinery.fields import written
from fleetui.apimachinery.model import (
    duplicate_problems,
    is_good_scalar,
    is_good_text,
    is_one_line,
    mapping_at,
    quote_value,
    wrong_type,
)

_CLUSTER_KEYS = frozenset(
    {"name", "labels", "taints", "properties", "resourceUsage", "eligible"}
)
_TAINT_KEYS = frozenset({"key", "value", "effect"})
_USAGE_SORTS = ("capacity", "allocatable", "available")
_USAGE_KEYS = frozenset(_USAGE_SORTS)
_ELIGIBLE_KEYS = frozenset({"value", "reason", "kind"})
_TEXT = frozenset({str})
_TEXT_OR_NUMBER = frozenset({str, int, float})
_EXPECTED = {_TEXT: "text", _TEXT_OR_NUMBER: "a quantity"}


def parse_clusters(raw: object, *, path: str = "clusters") -> tuple[Cluster, ...]:
    """Return the clusters of a case. Raise InvalidManifest, also for duplicate names."""
    if not isinstance(raw, list):
        raise faults_of([wrong_type(raw, "a list")], None, path=path)
    problems: list[ErrorDetail] = []
    clusters: list[Cluster] = []
    for index, item in enumerate(raw):
        problems += [problem.under(index) for problem in _problems(item)]
        if not problems:
            clusters.append(_cluster(item))

    names = (
        ((index, "name"), mapping_at(item).get("name"))
        for index, item in enumerate(raw)
    )
    problems += duplicate_problems(names, "unique names", types=str)
    if problems:
        raise faults_of(problems, raw, path=path)
    return tuple(clusters)


def parse_case_cluster(raw: object, *, path: str = "") -> Cluster:
    """Parse one cluster of a case. Raise InvalidManifest."""
    problems = _problems(raw)
    if problems or not isinstance(raw, dict):
        raise faults_of(problems, raw, path=path)
    return _cluster(raw)


def _problems(raw: object) -> list[ErrorDetail]:
    """Return the errors of one cluster; written so that a valid one costs little."""
    if not isinstance(raw, dict):
        return [wrong_type(raw, "an object")]
    problems: list[ErrorDetail] = []
    if not raw.keys() <= _CLUSTER_KEYS:
        problems += _unknown_keys(raw, _CLUSTER_KEYS)
    name = raw.get("name")
    if not name or not is_good_text(name):
        problems.append(_text_problem(name).under("name"))
    elif not is_one_line(name):
        message = "Must not contain line breaks or control characters"
        problems.append(
            ErrorDetail(("name",), "bad-format", message, "text on one line")
        )
    for key, problems_of in _PARTS.items():
        value = raw.get(key)
        if value is not None:
            problems += [problem.under(key) for problem in problems_of(value)]
    return problems


def _unknown_keys(raw: dict[Any, Any], known: Iterable[str]) -> Iterator[ErrorDetail]:
    allowed = ", ".join(sorted(known))
    for key in raw:
        if not is_good_text(key):
            yield ErrorDetail((), "wrong-type", "Keys must be strings", allowed)
        elif key not in known:
            yield ErrorDetail(
                (key,), "unknown-field", f"Unknown field {quote_value(key)}", allowed
            )


def _text_problem(value: object) -> ErrorDetail:
    if value is None or value == "":
        return ErrorDetail((), "required", "Required value", "non-empty text")
    return wrong_type(value, "text")


def _map_problems(value: object, types: frozenset[type]) -> Iterator[ErrorDetail]:
    if not isinstance(value, dict):
        yield wrong_type(value, "an object")
        return
    try:  # nearly all keys and values are ASCII text, which is quick to see
        if "".join(value).isascii() and "".join(value.values()).isascii():
            return
    except TypeError:
        pass
    for key, item in value.items():
        if not is_good_text(key):
            yield ErrorDetail(
                (), "wrong-type", "Keys must be strings", "strings as keys"
            )
        elif type(item) not in types or not is_good_scalar(item):
            yield wrong_type(item, _EXPECTED[types]).under(key)


def taint_problems(value: object) -> Iterator[ErrorDetail]:
    if not isinstance(value, list):
        yield wrong_type(value, "a list")
        return
    for index, taint in enumerate(value):
        yield from (problem.under(index) for problem in _one_taint_problems(taint))


def _one_taint_problems(taint: object) -> Iterator[ErrorDetail]:
    if not isinstance(taint, dict):
        yield wrong_type(taint, "an object")
        return
    if not taint.keys() <= _TAINT_KEYS:
        yield from _unknown_keys(taint, _TAINT_KEYS)
    if not taint.get("key") or not is_good_text(taint["key"]):
        yield _text_problem(taint.get("key")).under("key")
    if taint.get("value") is not None and not is_good_text(taint["value"]):
        yield wrong_type(taint["value"], "text").under("value")
    if taint.get("effect") not in (None, NO_SCHEDULE):
        yield ErrorDetail(
            ("effect",),
            "not-one-of",
            f"Unsupported value: {quote_value(taint['effect'])}",
            NO_SCHEDULE,
        )


def _usage_problems(value: object) -> Iterator[ErrorDetail]:
    if not isinstance(value, dict):
        yield wrong_type(value, "an object")
        return
    if not value.keys() <= _USAGE_KEYS:
        yield from _unknown_keys(value, _USAGE_KEYS)
    for key, quantities in value.items():
        if key in _USAGE_KEYS and quantities is not None:
            yield from (
                problem.under(key)
                for problem in _map_problems(quantities, _TEXT_OR_NUMBER)
            )


def _eligible_problems(value: object) -> Iterator[ErrorDetail]:
    if not isinstance(value, dict):
        yield wrong_type(value, "an object with a value")
        return
    yield from _unknown_keys(value, _ELIGIBLE_KEYS)
    if not isinstance(value.get("value"), bool):
        yield ErrorDetail(("value",), "required", "Required value", "true or false")
    if value.get("reason") is not None and not is_good_text(value["reason"]):
        yield wrong_type(value["reason"], "text").under("reason")
    if value.get("kind") is not None and value["kind"] not in list(EligibilityKind):
        message = f"Unsupported value: {quote_value(value['kind'])}"
        yield ErrorDetail(("kind",), "not-one-of", message, ", ".join(EligibilityKind))


_PARTS: dict[str, Callable[[object], Iterable[ErrorDetail]]] = {
    "labels": lambda value: _map_problems(value, _TEXT),
    "taints": taint_problems,
    "properties": lambda value: _map_problems(value, _TEXT_OR_NUMBER),
    "resourceUsage": _usage_problems,
    "eligible": _eligible_problems,
}


def _cluster(raw: dict[str, Any]) -> Cluster:
    usage = NO_USAGE
    if amounts := raw.get("resourceUsage"):
        usage = ResourceUsage(
            *(_quantities(amounts.get(sort)) for sort in _USAGE_SORTS)
        )
    return Cluster(
        raw["name"],
        raw.get("labels") or {},
        tuple(
            [
                Taint(taint["key"], taint.get("value") or "")
                for taint in raw.get("taints") or ()
            ]
        ),
        _quantities(raw.get("properties")),
        usage,
        Eligibility.from_plain(raw.get("eligible")),
    )


def _quantities(raw: dict[str, Any] | None) -> dict[str, str]:
    if not raw or _TEXT.issuperset(map(type, raw.values())):
        return raw or {}
    return {name: written(value) or "" for name, value in raw.items()}


def case_of_cluster(cluster: Cluster) -> dict[str, Any]:
    """Return the plain form of a cluster; parsing it results in an equal value."""
    usage = {sort: dict(getattr(cluster.usage, sort)) for sort in _USAGE_SORTS}
    eligibility = cluster.eligibility
    plain: dict[str, Any] = {
        "name": cluster.name,
        "labels": dict(cluster.labels),
        "taints": [
            {"key": taint.key, "value": taint.value} for taint in cluster.taints
        ],
        "properties": dict(cluster.properties),
        "resourceUsage": usage if any(usage.values()) else None,
        "eligible": None
        if eligibility == ELIGIBLE
        else {"value": False, "reason": eligibility.reason, "kind": eligibility.kind},
    }
    return {key: value for key, value in plain.items() if value}
