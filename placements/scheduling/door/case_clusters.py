"""Clusters in the plain form of `conformance/README.md`, for simulations: written out by hand for speed.

Names, labels and taints are any text here; a case may hold what no real cluster could.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from placements.scheduling.door.fields import written
from placements.scheduling.door.parsing import shown, wrong_type
from placements.scheduling.door.plain import is_good_scalar, is_good_text, is_one_line
from placements.scheduling.faults import Problem, faults_of
from placements.scheduling.fleet import (
    ELIGIBLE,
    NO_SCHEDULE,
    NO_USAGE,
    Cluster,
    Eligibility,
    EligibilityKind,
    ResourceUsage,
    Taint,
)

_CLUSTER_KEYS = frozenset({"name", "labels", "taints", "properties", "resourceUsage", "eligible"})
_TAINT_KEYS = frozenset({"key", "value", "effect"})
_USAGE_KEYS = frozenset({"capacity", "allocatable", "available"})
_ELIGIBLE_KEYS = frozenset({"value", "reason", "kind"})
_TEXT = frozenset({str})
_TEXT_OR_NUMBER = frozenset({str, int, float})


def parse_clusters(raw: object, *, path: str = "clusters") -> tuple[Cluster, ...]:
    """Turn the clusters of a case into values; raise Faults, for names that stand twice too."""
    if not isinstance(raw, list):
        raise faults_of([wrong_type(raw, "a list")], None, path=path)
    problems: list[Problem] = []
    clusters: list[Cluster] = []
    for index, item in enumerate(raw):
        found = _problems(item)
        problems += [problem.under(index) for problem in found]
        if not problems:
            clusters.append(_cluster(item))
    problems += _duplicates(raw)
    if problems:
        raise faults_of(problems, raw, path=path)
    return tuple(clusters)


def parse_case_cluster(raw: object, *, path: str = "") -> Cluster:
    """Turn one cluster of a case into a value; raise Faults with all that is wrong."""
    problems = _problems(raw)
    if problems or not isinstance(raw, dict):
        raise faults_of(problems, raw, path=path)
    return _cluster(raw)


def _duplicates(items: list[Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str):
            continue
        if name in seen:
            yield Problem((index, "name"), "duplicate", f"{shown(name)} is taken above", "each name once")
        seen.add(name)


def _problems(raw: object) -> list[Problem]:
    """Find what is wrong with one cluster; written so that a good one costs little."""
    if not isinstance(raw, dict):
        return [wrong_type(raw, "an object")]
    problems: list[Problem] = []
    if not raw.keys() <= _CLUSTER_KEYS:
        problems += _unknown_keys(raw, _CLUSTER_KEYS)
    name = raw.get("name")
    if not name or not is_good_text(name):
        problems.append(_text_problem(name).under("name"))
    elif not is_one_line(name):
        message = "holds a line break or control character"
        problems.append(Problem(("name",), "bad-format", message, "text on one line"))
    for key, problems_of in _PARTS.items():
        value = raw.get(key)
        if value is not None:
            problems += [problem.under(key) for problem in problems_of(value)]
    return problems


def _unknown_keys(raw: dict[Any, Any], known: Iterable[str]) -> Iterator[Problem]:
    allowed = ", ".join(sorted(known))
    for key in raw:
        if not is_good_text(key):
            yield Problem((), "wrong-type", "has a key that is not text", allowed)
        elif key not in known:
            yield Problem((key,), "unknown-field", "is not a field here", allowed)


def _text_problem(value: object) -> Problem:
    if value is None or value == "":
        return Problem((), "required", "is missing", "some text")
    return wrong_type(value, "text")


def _label_problems(value: object) -> Iterable[Problem]:
    return _map_problems(value, _TEXT)


def _quantity_problems(value: object) -> Iterable[Problem]:
    return _map_problems(value, _TEXT_OR_NUMBER)


def _map_problems(value: object, types: frozenset[type]) -> Iterable[Problem]:
    if not isinstance(value, dict):
        return [wrong_type(value, "an object")]
    return () if _is_plain_text(value) else list(_entry_problems(value, types))


def _is_plain_text(value: dict[Any, Any]) -> bool:
    """Tell quickly whether keys and values are all ASCII text, as nearly all are."""
    try:
        return "".join(value).isascii() and "".join(value.values()).isascii()
    except TypeError:
        return False


def _entry_problems(value: dict[Any, Any], types: frozenset[type]) -> Iterator[Problem]:
    for key, item in value.items():
        if not is_good_text(key):
            yield Problem((), "wrong-type", "has a key that is not text", "text keys only")
        elif type(item) not in types or not is_good_scalar(item):
            yield wrong_type(item, "text" if types is _TEXT else "a quantity").under(key)


def _taint_problems(value: object) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield wrong_type(value, "a list")
        return
    for index, taint in enumerate(value):
        if not isinstance(taint, dict):
            yield wrong_type(taint, "an object").under(index)
            continue
        yield from (problem.under(index) for problem in _one_taint_problems(taint))


def _one_taint_problems(taint: dict[Any, Any]) -> Iterator[Problem]:
    if not taint.keys() <= _TAINT_KEYS:
        yield from _unknown_keys(taint, _TAINT_KEYS)
    if not taint.get("key") or not is_good_text(taint["key"]):
        yield _text_problem(taint.get("key")).under("key")
    if taint.get("value") is not None and not is_good_text(taint["value"]):
        yield wrong_type(taint["value"], "text").under("value")
    if taint.get("effect") not in (None, NO_SCHEDULE):
        yield Problem(("effect",), "not-one-of", f"{shown(taint['effect'])} is no known effect", NO_SCHEDULE)


def _usage_problems(value: object) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield wrong_type(value, "an object")
        return
    if not value.keys() <= _USAGE_KEYS:
        yield from _unknown_keys(value, _USAGE_KEYS)
    for key, quantities in value.items():
        found = _quantity_problems(quantities) if key in _USAGE_KEYS and quantities is not None else ()
        if found:
            yield from (problem.under(key) for problem in found)


def _eligible_problems(value: object) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield wrong_type(value, "an object with a value")
        return
    yield from _unknown_keys(value, _ELIGIBLE_KEYS)
    if not isinstance(value.get("value"), bool):
        yield Problem(("value",), "required", "does not say whether the cluster is eligible", "true or false")
    if value.get("reason") is not None and not is_good_text(value["reason"]):
        yield wrong_type(value["reason"], "text").under("reason")
    if value.get("kind") is not None and value["kind"] not in list(EligibilityKind):
        message = f"{shown(value['kind'])} is no known kind"
        yield Problem(("kind",), "not-one-of", message, ", ".join(EligibilityKind))


_PARTS: dict[str, Callable[[object], Iterable[Problem]]] = {
    "labels": _label_problems,
    "taints": _taint_problems,
    "properties": _quantity_problems,
    "resourceUsage": _usage_problems,
    "eligible": _eligible_problems,
}


def _cluster(raw: dict[str, Any]) -> Cluster:
    return Cluster(
        raw["name"],
        raw.get("labels") or {},
        tuple([_taint(taint) for taint in raw.get("taints") or ()]),
        _quantities(raw.get("properties")),
        _usage(raw.get("resourceUsage")),
        _eligibility(raw.get("eligible")),
    )


def _taint(raw: dict[str, Any]) -> Taint:
    return Taint(raw["key"], raw.get("value") or "")


def _quantities(raw: dict[str, Any] | None) -> dict[str, str]:
    if not raw or _TEXT.issuperset(map(type, raw.values())):
        return raw or {}
    return {name: written(value) or "" for name, value in raw.items()}


def _usage(raw: dict[str, Any] | None) -> ResourceUsage:
    if not raw:
        return NO_USAGE
    capacity, allocatable, available = raw.get("capacity"), raw.get("allocatable"), raw.get("available")
    return ResourceUsage(_quantities(capacity), _quantities(allocatable), _quantities(available))


def _eligibility(raw: dict[str, Any] | None) -> Eligibility:
    if raw is None or raw["value"]:
        return ELIGIBLE
    kind = EligibilityKind(raw.get("kind") or EligibilityKind.UNSPECIFIED)
    return Eligibility(kind, raw.get("reason") or "")
