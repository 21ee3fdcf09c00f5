"""Conformance cases and scenarios, one JSON object per line (`docs/reference/cases.md`)."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clusters.case_manifest import parse_case_cluster, parse_clusters
from clusters.fleet import Cluster, Fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest, format_path
from fleetui.apimachinery.fields import has_second_dash
from fleetui.apimachinery.model import Semantics, parse_semantics
from fleetui.apimachinery.yaml import load_json
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.explain.decision_document import scores_of
from placements.explain.hub_status import HubStatus, hub_status
from placements.manifests.binding import (
    BindingState,
    PlacedBinding,
    parse_case_bindings,
)
from placements.manifests.ocm_options import parse_ocm_options, refuse_weighted_limits
from placements.manifests.ocm_placement import parse_ocm_placement
from placements.manifests.policy import parse_policy
from placements.services.simulate.hub_cases import decide_hub_case

Raw = Mapping[str, Any]
_FIELDS = {
    "relabel": ("labels", "labels"),
    "taint": ("taints", "taints"),
    "eligible": ("eligible", "eligibility"),
}
"""The key of a change, and the field of the cluster that it replaces."""
_CHANGES = ("add", "remove", *_FIELDS)


def run_scenario(case: Raw) -> list[dict[str, Any]]:
    """Run every step of a scenario; return the result of each. Raise InvalidManifest."""
    semantics = parse_semantics(case.get("semantics") or Semantics.KUBEFLEET.value)
    hub = _Hub(
        semantics,
        {cluster.name: cluster for cluster in parse_clusters(case.get("clusters"))},
    )
    return [
        hub.run(step, f"steps[{index}]")
        for index, step in enumerate(_items(case["steps"], "steps"))
    ]


@dataclass
class _Placed:
    """A binding and the policy snapshot under which it was decided."""

    binding: PlacedBinding
    snapshot: int

    def plain(self, latest: int) -> dict[str, Any]:
        return {
            "cluster": self.binding.cluster,
            "state": self.binding.state,
            "policy": "current" if self.snapshot == latest else "obsolete",
            "affinityScore": self.binding.affinity_score,
            "topologySpreadScore": self.binding.topology_spread_score,
        }


class _Hub:
    """The state of a hub between the cycles of one placement."""

    def __init__(self, semantics: Semantics, clusters: dict[str, Cluster]) -> None:
        self.semantics = semantics
        self.clusters = clusters
        self.placed: dict[str, _Placed] = {}
        self.snapshot = -1
        self.policy_of_snapshot: dict[str, Any] | None = None
        self.status: HubStatus | None = None

    def run(self, step: Raw, path: str) -> dict[str, Any]:
        """Change the fleet, bind, set the policy, and run a cycle; return its result."""
        for index, change in enumerate(_items(step.get("fleet"), f"{path}.fleet")):
            self._change_fleet(change, f"{path}.fleet[{index}]")
        for name in _items(
            step.get("bind"), f"{path}.bind", str, "the name of a cluster", "text"
        ):
            placed = self.placed.get(name)
            if placed is not None and placed.binding.state is BindingState.SCHEDULED:
                placed.binding = placed.binding._replace(state=BindingState.BOUND)
        policy = parse_policy(
            step.get("policy"), semantics=self.semantics, path=f"{path}.policy"
        )

        # No webhook writes defaults here: on a hub without one, an explicit PickAll differs from no policy.
        is_null = step.get("policy") is None and self.semantics is Semantics.KUBEFLEET
        content = None if is_null else policy.without_number()
        if content != self.policy_of_snapshot or self.snapshot < 0:
            self.policy_of_snapshot = content
            self.snapshot += 1
            self.status = None

        bindings = tuple(
            placed.binding._replace(is_current=placed.snapshot == self.snapshot)
            for placed in self.placed.values()
        )
        decision = schedule(
            Cycle(Fleet(self.clusters.values()), policy, bindings, self.semantics)
        )

        picked = set(decision.picked_names)
        for binding in decision.bindings_after:
            before = self.placed.get(binding.cluster)
            if before is not None and binding.cluster not in picked:
                before.binding = binding
            else:
                self.placed[binding.cluster] = _Placed(binding, self.snapshot)
        self.status = hub_status(decision) or self.status

        return {
            "bindings": [
                self.placed[name].plain(self.snapshot) for name in sorted(self.placed)
            ],
            "pickedOrder": list(decision.picked_names),
            "condition": self.status and self.status.condition,
            "decisions": [] if self.status is None else list(self.status.decisions),
            **({"error": True} if decision.is_failed else {}),
        }

    def _change_fleet(self, change: Raw, path: str) -> None:
        operation = change.get("op")
        if operation not in _CHANGES:
            message = "Unsupported value: not a change of the fleet"
            raise InvalidManifest.of(
                f"{path}.op", "not-one-of", message, ", ".join(_CHANGES)
            )
        if operation == "add":
            cluster = parse_case_cluster(change.get("cluster"), path=f"{path}.cluster")
            if cluster.name in self.clusters:
                message = f"Duplicate value: {cluster.name} is in the fleet already"
                raise InvalidManifest.of(f"{path}.cluster.name", "duplicate", message)
            self.clusters[cluster.name] = cluster
            return
        name = change.get("name")
        if not isinstance(name, str) or name not in self.clusters:
            message = "Invalid value: no such cluster in the fleet"
            raise InvalidManifest.of(f"{path}.name", "unknown-cluster", message)
        if operation == "remove":
            del self.clusters[name]
        else:
            key, field = _FIELDS[operation]
            new = parse_case_cluster({"name": name, key: change.get(key)}, path=path)
            self.clusters[name] = self.clusters[name]._replace(
                **{field: getattr(new, field)}
            )


def _items(
    raw: object,
    path: str,
    kind: type = Mapping,
    noun: str = "an object",
    allowed: str = "an object",
) -> list[Any]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise InvalidManifest.of(
            path, "wrong-type", "Invalid value: must be a list", "a list"
        )
    for index, item in enumerate(raw):
        if not isinstance(item, kind):
            raise InvalidManifest.of(
                f"{path}[{index}]",
                "wrong-type",
                f"Invalid value: must be {noun}",
                allowed,
            )
    return raw


Answer = dict[str, Any]

_KEYS = frozenset(
    {"id", "semantics", "clusters", "bindings", "policy", "placement", "ocm", "expect"}
)
_ALIKE = 0.8


def answers(lines: Iterable[bytes]) -> Iterator[Answer]:
    """Yield the result of each line; one that cannot be read or is invalid results in its first error."""
    for position, line in enumerate(lines, start=1):
        identity: Answer = {}
        try:
            case = load_json(line.decode())
            if not isinstance(case, dict):
                message = "Invalid value: must be a JSON object"
                raise InvalidManifest.of(
                    "", "wrong-type", message, "one object per line"
                )
            if "id" in case:
                identity = {"id": case["id"]}
            if "steps" in case:
                answer = {"steps": run_scenario(case)}
            elif "objects" in case:
                answer = decide_hub_case(case)
            else:
                answer = _single(case)
            yield {**identity, **answer}
        except InvalidManifest as invalid:
            yield {**identity, "line": position, "error": _error(invalid.errors[0])}
        except UnicodeDecodeError:
            error = FieldError("", "not-text", "Must be UTF-8 text", "UTF-8")
            yield {"line": position, "error": _error(error)}


def _error(error: FieldError) -> Answer:
    return {"code": error.code, "path": error.path, "message": error.message}


def _single(case: Raw) -> Answer:
    decision = schedule(_cycle(case))
    if decision.is_failed:
        path = (
            "policy.topologySpreadConstraints"
            if case.get("placement") is None
            else "placement.spec"
        )
        return {"error": _error(failure_fault(decision, path))}
    return {
        "picked": list(decision.picked_names),
        "scores": scores_of(decision),
        "fulfilled": decision.is_fulfilled,
        "unscheduled": list(decision.unscheduled),
        "kept": list(decision.kept),
    }


def _cycle(case: Raw) -> Cycle:
    semantics, misplaced = parse_semantics(case.get("semantics")), []
    for key in sorted(case.keys() - _KEYS):  # others, such as a source, are free
        similar = difflib.get_close_matches(
            key.lower(), _KEYS - case.keys(), n=1, cutoff=_ALIKE
        )
        if similar:
            message = f'Unknown field. Did you mean "{similar[0]}"?'
            misplaced.append(FieldError(key, "unknown-field", message))
    if semantics is not Semantics.OCM:
        message = f"Forbidden: only allowed for ocm semantics, not for {semantics}"
        misplaced += [
            FieldError(key, "field-of-other-semantics", message, "no such field")
            for key in ("placement", "ocm")
            if case.get(key) is not None
        ]
    elif case.get("placement") is not None and case.get("policy") is not None:
        message = "Forbidden: not allowed together with placement"
        misplaced.append(FieldError("policy", "conflict", message, "one of the two"))
    if misplaced:
        raise InvalidManifest(misplaced)

    fleet = Fleet(parse_clusters(case.get("clusters")))
    bindings = parse_case_bindings(case.get("bindings"))
    if semantics is not Semantics.OCM:
        return Cycle(
            fleet,
            parse_policy(case.get("policy"), semantics=semantics),
            bindings,
            semantics,
        )
    if case.get("placement") is not None:
        placement = parse_ocm_placement(
            case["placement"], options=case.get("ocm"), path="placement"
        )
        return Cycle(
            fleet, placement.policy, bindings, semantics, placement.options.to_plain()
        )
    policy = parse_policy(case.get("policy"), semantics=semantics)
    options = parse_ocm_options(case.get("ocm"))
    refuse_weighted_limits(policy, options)
    return Cycle(fleet, policy, bindings, semantics, options.to_plain())


def failure_fault(decision: Decision, path: str) -> FieldError:
    """Return why the cycle failed, as an error: a malformed property, or what `path` requires."""
    if decision.is_unsatisfiable:
        number = decision.cycle.policy.number_of_clusters
        return FieldError(
            path, "unsatisfiable", f"Fewer than {number} clusters can be selected"
        )
    first = decision.malformed[0]
    place = format_path(("clusters", first.cluster, "properties", first.property))
    message = f"Invalid value: {first.text[:60]!r}: must be a quantity, since the policy compares it"
    if has_second_dash(first.property):
        message = (
            "Invalid name: KubeFleet cannot read a resource name with a second dash"
        )
    return FieldError(place, "malformed-property", message)
