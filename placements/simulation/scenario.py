"""A scenario: several cycles on one placement while the fleet and the policy change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from placements.explain.hub_status import HubStatus, hub_status
from placements.scheduling.bindings import Binding, BindingState
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision
from placements.scheduling.door.case_clusters import parse_case_cluster, parse_clusters
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.fleet import Cluster, Fleet
from placements.scheduling.policy import PlacementPolicy, Semantics, parse_policy, parse_semantics
from placements.scheduling.scheduler import schedule

Raw = Mapping[str, Any]
_CHANGES = ("add", "remove", "relabel", "taint", "eligible")


def run_scenario(case: Raw) -> list[dict[str, Any]]:
    """Run every step of a scenario; give the answer of each. Raises Faults."""
    semantics = parse_semantics(case.get("semantics") or Semantics.KUBEFLEET.value)
    hub = _Hub(semantics, {cluster.name: cluster for cluster in parse_clusters(case.get("clusters"))})
    return [hub.run(step, f"steps[{index}]") for index, step in enumerate(_objects(case["steps"], "steps"))]


@dataclass
class _Placed:
    """A binding and the policy snapshot under which it was decided."""

    binding: Binding
    snapshot: int


class _Hub:
    """What a hub keeps between the cycles of one placement."""

    def __init__(self, semantics: Semantics, clusters: dict[str, Cluster]) -> None:
        self.semantics = semantics
        self.clusters = clusters
        self.placed: dict[str, _Placed] = {}
        self.snapshot = -1
        self.policy_of_snapshot: dict[str, Any] | None = None
        self.status: HubStatus | None = None

    def run(self, step: Raw, path: str) -> dict[str, Any]:
        """Change the fleet, bind, take the policy, run cycles until nothing more is to do."""
        for index, change in enumerate(_objects(step.get("fleet"), f"{path}.fleet")):
            self._change(change, f"{path}.fleet[{index}]")
        self._bind(step.get("bind"), f"{path}.bind")
        policy = parse_policy(step.get("policy"), semantics=self.semantics, path=f"{path}.policy")
        self._take_snapshot(policy)
        decision = schedule(Cycle(Fleet(self.clusters.values()), policy, self._bindings(), self.semantics))
        self._carry_out(decision)
        answer = self._answer(decision)
        return {**answer, "error": True} if decision.is_failed else answer

    def _change(self, change: Raw, path: str) -> None:
        operation = change.get("op")
        if operation not in _CHANGES:
            raise _fault(f"{path}.op", "not-one-of", "is not a change of the fleet", ", ".join(_CHANGES))
        if operation == "add":
            cluster = parse_case_cluster(change.get("cluster"), path=f"{path}.cluster")
            if cluster.name in self.clusters:
                raise _fault(f"{path}.cluster.name", "duplicate", f"{cluster.name} is in the fleet already")
            self.clusters[cluster.name] = cluster
            return
        name = self._known(change.get("name"), f"{path}.name")
        if operation == "remove":
            del self.clusters[name]
        else:
            self.clusters[name] = _changed(self.clusters[name], operation, change, path)

    def _known(self, name: object, path: str) -> str:
        if not isinstance(name, str) or name not in self.clusters:
            raise _fault(path, "unknown-cluster", "names no cluster of the fleet")
        return name

    def _bind(self, names: object, path: str) -> None:
        for index, name in enumerate(_list(names, path)):
            if not isinstance(name, str):
                raise _fault(f"{path}[{index}]", "wrong-type", "is not the name of a cluster", "text")
            placed = self.placed.get(name)
            if placed is not None and placed.binding.state is BindingState.SCHEDULED:
                placed.binding = replace(placed.binding, state=BindingState.BOUND)

    def _take_snapshot(self, policy: PlacementPolicy) -> None:
        content = policy.without_number()
        if content != self.policy_of_snapshot:
            self.policy_of_snapshot = content
            self.snapshot += 1
            self.status = None

    def _bindings(self) -> tuple[Binding, ...]:
        return tuple(
            replace(placed.binding, is_current=placed.snapshot == self.snapshot)
            for placed in self.placed.values()
        )

    def _carry_out(self, decision: Decision) -> None:
        picked = set(decision.picked_names)
        for binding in decision.bindings_after:
            before = self.placed.get(binding.cluster)
            if before is not None and binding.cluster not in picked:
                before.binding = binding
            else:
                self.placed[binding.cluster] = _Placed(binding, self.snapshot)
        self.status = hub_status(decision) or self.status

    def _answer(self, decision: Decision) -> dict[str, Any]:
        return {
            "bindings": [self._binding_answer(name) for name in sorted(self.placed)],
            "pickedOrder": list(decision.picked_names),
            "condition": self.status and self.status.condition.plain(),
            "decisions": [] if self.status is None else [one.plain() for one in self.status.decisions],
        }

    def _binding_answer(self, name: str) -> dict[str, Any]:
        placed = self.placed[name]
        return {
            "cluster": name,
            "state": placed.binding.state,
            "policy": "current" if placed.snapshot == self.snapshot else "obsolete",
            "affinityScore": placed.binding.affinity_score,
            "topologySpreadScore": placed.binding.topology_spread_score,
        }


def _changed(cluster: Cluster, operation: str, change: Raw, path: str) -> Cluster:
    fields: dict[str, tuple[str, Callable[[Cluster], dict[str, Any]]]] = {
        "relabel": ("labels", lambda read: {"labels": read.labels}),
        "taint": ("taints", lambda read: {"taints": read.taints}),
        "eligible": ("eligible", lambda read: {"eligibility": read.eligibility}),
    }
    key, taken_over = fields[operation]
    read = parse_case_cluster({"name": cluster.name, key: change.get(key)}, path=path)
    return cluster._replace(**taken_over(read))


def _objects(raw: object, path: str) -> list[Raw]:
    items = _list(raw, path)
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise _fault(f"{path}[{index}]", "wrong-type", "is not an object", "an object")
    return items


def _list(raw: object, path: str) -> list[Any]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise _fault(path, "wrong-type", "is not a list", "a list")
    return raw


def _fault(path: str, code: str, message: str, allowed: str = "") -> Faults:
    return Faults([Fault(path, code, message, allowed)])
