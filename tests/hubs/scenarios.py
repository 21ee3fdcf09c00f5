"""Recorded scenarios as objects of a live hub: what its controllers and scheduler wrote, step by step.

Nothing is decided here: bindings, conditions and decisions are those of the recording
(`docs/reference/cases.md#steps`).
"""

import json
import lzma
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from clusters.models import HubStream
from placements.hubs.replay.observed_decisions import (
    HubSide,
    agreement_of_placement,
    observe_due,
    replayed,
)
from placements.models import HubDecision, Placement
from tests.hubs.hub_documents import PREFIX
from tests.hubs.projecting import ProjectedHub

FILE = (
    Path(__file__).parents[1] / "data" / "conformance" / "kubefleet-scenarios.jsonl.xz"
)
START = datetime(2026, 11, 1, 10, tzinfo=UTC)
LATER, EARLIER = "2026-11-09T10:00:00Z", "2026-10-20T10:00:00Z"
CREATED = "2026-11-01T10:05:00Z"
STEP = timedelta(minutes=10)
NAME = "web"
Document = dict[str, Any]


@cache
def scenarios() -> tuple[Document, ...]:
    return tuple(map(json.loads, lzma.decompress(FILE.read_bytes()).splitlines()))


def member_document(cluster: Document) -> Document:
    """Write a member cluster that is eligible, or not for the reason of the scenario."""
    state = cluster.get("eligible") or {}
    kind = "" if state.get("value", True) else state.get("kind", "")
    conditions = [
        {"type": name, "status": "True", "reason": name, "lastTransitionTime": EARLIER}
        for name in ("Joined", "Healthy")
        if not (kind == "noHealth" and name == "Healthy")
    ]
    if kind == "notJoined":
        conditions[0]["status"] = "False"
    if kind == "unhealthy":
        conditions[1]["status"] = "False"
    heartbeat = EARLIER if kind == "staleHeartbeat" else LATER
    agent = {
        "type": "MemberAgent",
        "conditions": conditions,
        "lastReceivedHeartbeat": heartbeat,
    }
    properties = {
        name: {"value": value} for name, value in cluster.get("properties", {}).items()
    }
    metadata: Document = {"name": cluster["name"], "labels": cluster.get("labels", {})}
    if kind == "leaving":
        metadata["deletionTimestamp"] = "2026-11-01T09:00:00Z"
    return {
        "metadata": metadata,
        "spec": {
            "identity": {"kind": "User", "name": "agent"},
            "taints": cluster.get("taints", []),
        },
        "status": {
            "agentStatus": [] if kind == "noAgent" else [agent],
            "properties": properties,
            "resourceUsage": cluster.get("resourceUsage", {}),
        },
    }


def target(one: Document) -> Document:
    """Write the decision about a cluster as the status of a policy snapshot has it."""
    scores = {
        "affinityScore": one["affinityScore"],
        "priorityScore": one["topologySpreadScore"],
    }
    scores = {key: value for key, value in scores.items() if value is not None}
    listed = {
        "clusterName": one["cluster"],
        "selected": one["selected"],
        "reason": one["reason"],
    }
    return listed | ({"clusterScore": scores} if scores else {})


class RecordedHub:
    """A live hub on which a scenario takes place; `now` is the time of the step."""

    def __init__(self, scenario: Document) -> None:
        self.scenario, self.now = scenario, START
        self.live = ProjectedHub(
            scenario["id"].lower(), lease_expires_at=START + timedelta(days=1)
        )
        self.live.mirror._clock = lambda: self.now
        self.clusters = {cluster["name"]: cluster for cluster in scenario["clusters"]}
        self.uids = {name: f"{name}-0" for name in self.clusters}
        self.bindings: dict[str, Document] = {}
        self.policy: Document | None = None
        self.snapshot, self.number, self.made = -1, 0, 0
        members = [
            self.live.item("MemberCluster", member_document(one), uid=self.uids[name])
            for name, one in self.clusters.items()
        ]
        self.live.mirror.write(members)
        self.live.project(now=self.now)
        with self.live.scope():
            HubStream.objects.update(listed_at=START)

    def steps(self) -> Iterator[Document]:
        """Write one step after the other as the hub does; yield what was recorded of it."""
        for step, expected in zip(
            self.scenario["steps"], self.scenario["expect"], strict=True
        ):
            self.write(step, expected)
            yield expected

    def write(self, step: Document, expected: Document) -> None:
        self.now += STEP
        self.number += 1
        for change in step.get("fleet", ()):
            self._change(change)
        self._bind(step.get("bind", ()))
        self.live.mirror.flush({})  # heartbeats
        self.live.project(now=self.now)
        self.live.rejudge(now=self.now)
        self.now += timedelta(seconds=30)
        self._write_placement(step.get("policy"))
        self._write_bindings(expected)
        self.write_status(expected)
        self.live.project(now=self.now)

    def _change(self, change: Document) -> None:
        if change["op"] == "remove":
            del self.clusters[change["name"]]
            gone = self.live.removal(
                "MemberCluster", change["name"], uid=self.uids.pop(change["name"])
            )
            self.live.mirror.write([gone])
            return
        if change["op"] == "add":
            cluster = change["cluster"]
        else:
            key = {"relabel": "labels", "taint": "taints", "eligible": "eligible"}[
                change["op"]
            ]
            cluster = {**self.clusters[change["name"]], key: change[key]}
        self.clusters[cluster["name"]] = cluster
        uid = self.uids.setdefault(cluster["name"], f"{cluster['name']}-{self.number}")
        self.live.mirror.write(
            [self.live.item("MemberCluster", member_document(cluster), uid=uid)]
        )

    def _bind(self, names: Any) -> None:
        for name in names:
            if (
                name in self.bindings
                and self.bindings[name]["spec"]["state"] == "Scheduled"
            ):
                self.bindings[name]["spec"]["state"] = "Bound"
                self._put_binding(self.bindings[name])

    def _write_placement(self, policy: Document | None) -> None:
        content = None
        if policy is not None:
            content = {
                key: value for key, value in policy.items() if key != "numberOfClusters"
            }
        if self.snapshot < 0 or content != self.policy:
            self.snapshot, self.policy = self.snapshot + 1, content
        self.wanted = (policy or {}).get("numberOfClusters")
        selector = {"group": "", "version": "v1", "kind": "Namespace", "name": NAME}
        document = {
            "metadata": {
                "name": NAME,
                "generation": self.number,
                "creationTimestamp": CREATED,
            },
            "spec": {
                "resourceSelectors": [selector],
                **({"policy": policy} if policy else {}),
            },
        }
        self.live.put("ClusterResourcePlacement", document)

    def _write_bindings(self, expected: Document) -> None:
        """Write the bindings that changed: new and re-used ones in the order of picking, then the others."""
        order = {name: place for place, name in enumerate(expected["pickedOrder"])}
        after = sorted(
            expected["bindings"], key=lambda one: order.get(one["cluster"], len(order))
        )
        for one in after:
            old = self.bindings.get(one["cluster"])
            if (
                old is not None
                and old["spec"]["state"] == "Unscheduled"
                and one["state"] != "Unscheduled"
            ):
                old["metadata"]["annotations"] = {}
            document = self._binding(one, old)
            if old is None or document != old:
                self.bindings[one["cluster"]] = document
                self._put_binding(document)
        for name in set(self.bindings) - {one["cluster"] for one in after}:
            gone = self.bindings.pop(name)
            self.live.mirror.write(
                [
                    self.live.removal(
                        "ClusterResourceBinding",
                        gone["metadata"]["name"],
                        uid=gone["uid"],
                    )
                ]
            )

    def _binding(self, one: Document, old: Document | None) -> Document:
        snapshot = f"{NAME}-{self.snapshot}"
        if one["policy"] != "current" and old is not None:
            snapshot = old["spec"]["schedulingPolicySnapshotName"]
        annotations = dict(old["metadata"].get("annotations", {})) if old else {}
        if (
            old is not None
            and one["state"] == "Unscheduled"
            and old["spec"]["state"] != "Unscheduled"
        ):
            annotations[f"{PREFIX}previous-binding-state"] = old["spec"]["state"]
        if old is None:
            self.made += 1
        name = (
            old["metadata"]["name"] if old else f"{NAME}-{one['cluster']}-{self.made}"
        )
        scores = {
            "affinityScore": one["affinityScore"],
            "priorityScore": one["topologySpreadScore"],
        }
        scores = {key: value for key, value in scores.items() if value is not None}
        metadata = {
            "name": name,
            "labels": {f"{PREFIX}parent-CRP": NAME},
            "annotations": annotations,
        }
        if old is None:
            metadata["creationTimestamp"] = self._written()
        else:
            metadata["creationTimestamp"] = old["metadata"]["creationTimestamp"]
        return {
            "uid": f"uid-{name}",
            "metadata": metadata,
            "spec": {
                "state": one["state"],
                "targetCluster": one["cluster"],
                "schedulingPolicySnapshotName": snapshot,
                "clusterDecision": {
                    "clusterName": one["cluster"],
                    "selected": True,
                    "clusterScore": scores,
                },
            },
        }

    def _put_binding(self, document: Document) -> None:
        content = {key: value for key, value in document.items() if key != "uid"}
        self.live.mirror.write(
            [self.live.item("ClusterResourceBinding", content, uid=document["uid"])]
        )

    def write_status(self, expected: Document) -> None:
        """Write the latest policy snapshot with the status that the scheduler wrote, if any."""
        annotations = {f"{PREFIX}CRP-generation": str(self.number)}
        if self.wanted is not None:
            annotations[f"{PREFIX}number-of-clusters"] = str(self.wanted)
        documents = [
            self._snapshot(number, {}, is_latest=False, policy=None)
            for number in range(self.snapshot)
            if number == self.snapshot - 1
        ]
        latest = self._snapshot(
            self.snapshot, annotations, is_latest=True, policy=self.policy
        )
        if expected["condition"] is not None:
            condition = {
                "type": "Scheduled",
                "lastTransitionTime": self._written(),
                **expected["condition"],
            }
            latest["status"] = {
                "observedCRPGeneration": self.number,
                "conditions": [condition],
                "targetClusters": list(map(target, expected["decisions"])),
            }
        self.live.put("ClusterSchedulingPolicySnapshot", *documents, latest)

    def _snapshot(
        self, number: int, notes: Any, *, is_latest: bool, policy: Any
    ) -> Document:
        labels = {
            f"{PREFIX}parent-CRP": NAME,
            f"{PREFIX}policy-index": str(number),
            f"{PREFIX}is-latest-snapshot": str(is_latest).lower(),
        }
        spec = {"policyHash": "aGFzaA=="} | ({"policy": policy} if policy else {})
        return {
            "metadata": {
                "name": f"{NAME}-{number}",
                "labels": labels,
                "annotations": notes,
            },
            "spec": spec,
        }

    def _written(self) -> str:
        return f"{self.now:%Y-%m-%dT%H:%M:%SZ}"

    def observe(self, *, after: timedelta = timedelta(seconds=4)) -> HubSide:
        """Record what is due some seconds later; return the replay of the latest decision then."""
        self.now += after
        with self.live.scope():
            while observe_due(now=self.now):
                pass
            placement = Placement.objects.get(name=NAME)
            return replayed(
                HubDecision.objects.get(placement=placement, is_latest=True)
            )

    def pending(self) -> bool:
        """Return whether the page of the placement shows that the hub has not decided yet."""
        with self.live.scope():
            shown = agreement_of_placement(Placement.objects.get(name=NAME))
        return shown is not None and shown.value == "pending"
