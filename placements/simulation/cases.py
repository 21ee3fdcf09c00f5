"""Conformance cases: one JSON object a line in, one answer a line out (`conformance/README.md`)."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from placements.explain.document import scores_of
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision
from placements.scheduling.door.binding_documents import parse_case_bindings
from placements.scheduling.door.case_clusters import parse_clusters
from placements.scheduling.door.json_text import load_json
from placements.scheduling.door.ocm_options import parse_ocm_options, refuse_weighted_limits
from placements.scheduling.door.ocm_placement import parse_ocm_placement
from placements.scheduling.faults import Fault, Faults, format_path
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import Semantics, parse_policy, parse_semantics
from placements.scheduling.scheduler import schedule
from placements.simulation.scenario import run_scenario

Answer = dict[str, Any]

_KEYS = frozenset({"id", "semantics", "clusters", "bindings", "policy", "placement", "ocm", "expect"})
_ALIKE = 0.8


def answers(lines: Iterable[bytes]) -> Iterator[Answer]:
    """Answer each line; one that cannot be read or is invalid is answered with its first fault."""
    return (_answer(line, position) for position, line in enumerate(lines, start=1))


def is_refusal(answer: Answer) -> bool:
    """Tell whether an answer says that its line was unreadable or invalid."""
    return "error" in answer and "line" in answer


def _answer(line: bytes, position: int) -> Answer:
    identity: Answer = {}
    try:
        case = load_json(_text(line))
        if not isinstance(case, dict):
            raise Faults([Fault("", "wrong-type", "a case is a JSON object", "one object a line")])
        if "id" in case:
            identity = {"id": case["id"]}
        answer = {"steps": run_scenario(case)} if "steps" in case else _single(case)
    except Faults as found:
        return {**identity, "line": position, "error": _error(found.faults[0])}
    return {**identity, **answer}


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise Faults([Fault("", "not-text", "the line is not UTF-8 text", "UTF-8")]) from error


def _error(fault: Fault) -> Answer:
    return {"code": fault.code, "path": fault.path, "message": fault.message}


def _single(case: Mapping[str, Any]) -> Answer:
    decision = schedule(_cycle(case))
    if decision.is_failed:
        return {"error": _error(failure_fault(decision, _wish_path(case)))}
    return {
        "picked": list(decision.picked_names),
        "scores": scores_of(decision),
        "fulfilled": decision.is_fulfilled,
        "unscheduled": list(decision.unscheduled),
        "kept": list(decision.kept),
    }


def _cycle(case: Mapping[str, Any]) -> Cycle:
    semantics = parse_semantics(case.get("semantics"))
    if misplaced := list(_misplaced(case, semantics)):
        raise Faults(misplaced)
    fleet = Fleet(parse_clusters(case.get("clusters")))
    bindings = parse_case_bindings(case.get("bindings"))
    if semantics is not Semantics.OCM:
        return Cycle(fleet, parse_policy(case.get("policy"), semantics=semantics), bindings, semantics)
    if case.get("placement") is not None:
        wish = parse_ocm_placement(case["placement"], options=case.get("ocm"), path="placement")
        return Cycle(fleet, wish.policy, bindings, semantics, wish.options.to_plain())
    policy = parse_policy(case.get("policy"), semantics=semantics)
    options = parse_ocm_options(case.get("ocm"))
    refuse_weighted_limits(policy, options)
    return Cycle(fleet, policy, bindings, semantics, options.to_plain())


def _misplaced(case: Mapping[str, Any], semantics: Semantics) -> Iterator[Fault]:
    """Refuse what would be passed over unsaid; other keys, such as a source, are nobody's business here."""
    for key in sorted(case.keys() - _KEYS):
        similar = difflib.get_close_matches(key.lower(), _KEYS - case.keys(), n=1, cutoff=_ALIKE)
        if similar:
            yield Fault(key, "unknown-field", f"is not a field of a case; did you mean {similar[0]}?")
    if semantics is not Semantics.OCM:
        for key in ("placement", "ocm"):
            if case.get(key) is not None:
                message = f"is a field of ocm semantics; this case has {semantics} semantics"
                yield Fault(key, "field-of-other-semantics", message, "no such field")
    elif case.get("placement") is not None and case.get("policy") is not None:
        yield Fault("policy", "conflict", "goes without placement", "one of the two")


def _wish_path(case: Mapping[str, Any]) -> str:
    return "policy.topologySpreadConstraints" if case.get("placement") is None else "placement.spec"


def failure_fault(decision: Decision, path: str) -> Fault:
    """Say what made the cycle fail, as a fault: a malformed property, or what `path` wishes for."""
    if decision.is_unsatisfiable:
        number = decision.cycle.policy.number_of_clusters
        message = f"no {number} clusters can be picked, and fewer are not wanted"
        return Fault(path, "unsatisfiable", message)
    first = decision.malformed[0]
    place = format_path(("clusters", first.cluster, "properties", first.property))
    return Fault(place, "malformed-property", f"{first.text[:60]!r} is no quantity; the policy compares it")
