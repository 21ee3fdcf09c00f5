"""Random operations over REST on a small simulated fleet; after each some things must hold, and in the end
everything converges once nothing is wrong any more.

It runs 200 sequences from other seeds each time, each printed: `pytest -m nightly -s
tests/services/test_random_campaign.py`; CAMPAIGN_SEED repeats one of them. The short form is in the campaign
of pages.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta, tzinfo
from math import ceil
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)
from rest_framework.test import APIClient

from clusters.models import MemberCluster, Membership, SimulatedPlacement
from clusters.operations.edit import forget
from clusters.operations.heartbeat import observe
from clusters.operations.join import ClusterSpec, upsert_clusters
from placements.api import base, disruption
from placements.engine.rollout.actions import Action, Remove
from placements.engine.rollout.state import EMPTY, Phase
from placements.engine.status import HealthLevel
from placements.manifests.binding import BindingState
from placements.models import (
    ApprovalRequest,
    Binding,
    Leftover,
    Placement,
    Rollout,
    StagedRun,
)
from placements.services.disruption.drains import advance_drains
from placements.services.health import healths_of
from placements.services.rollout_state import RolloutContext
from placements.services.rollouts import controller, removals
from tests.database import forget_caches, rolled_back
from tests.rows import (
    NAMESPACE,
    NOW,
    deployment,
    member_document,
    person,
    placement_document,
    spec,
)
from tests.services.rollouts import overrides
from tests.services.rollouts.staged import (
    run_document,
    stage,
    staged_spec,
    strategy_document,
)
from tests.services.rollouts.world import QUICK, World

API = "/api/v1"
CLUSTERS = ("c000", "c001", "c002", "c003")
ROLLING = ("web", "db")
STAGED = "staged"
NAMESPACES = {"web": "shop", "db": "db", STAGED: STAGED}
FAULTS = (
    {"kind": "unreachable"},
    {"kind": "silent"},
    {"kind": "unhealthy"},
    {"kind": "timeOut"},
    {"kind": "timeOut", "calls": ["apply"], "afterEffect": True},
    {"kind": "timeOut", "calls": ["remove"], "afterEffect": True},
    {"kind": "refuse"},
    {"kind": "notReady"},
    {"kind": "flap", "periodSeconds": 5},
)
BUDGET = {
    "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
    "kind": "ClusterResourcePlacementDisruptionBudget",
}

clusters = st.sampled_from(CLUSTERS)
rolling = st.sampled_from(ROLLING)
placements = st.sampled_from((*ROLLING, STAGED))
limits = st.sampled_from((0, 1, 2, "50%"))
tiers = st.sampled_from(("", "first", "second"))


def policy(
    name: str, number: int, tier: str, *, spread: bool = False
) -> dict[str, Any]:
    """Make a policy: of a type that stays the same, for all clusters or those with a label."""
    document: dict[str, Any] = {"placementType": "PickAll"}
    if name == "db":
        document = {"placementType": "PickN", "numberOfClusters": number}
    if name == "db" and spread:
        document["topologySpreadConstraints"] = [{"topologyKey": "stage", "maxSkew": 1}]
    if tier:
        terms = [{"labelSelector": {"matchLabels": {"stage": tier}}}]
        required = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "clusterSelectorTerms": terms
            }
        }
        document["affinity"] = {"clusterAffinity": required}
    return document


def own(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Make the spec of a placement of its namespace: clusters refuse objects of another placement."""
    return {**document, "resourceSelectors": [{**NAMESPACE, "name": NAMESPACES[name]}]}


def strategy(unavailable: int | str, surge: int | str) -> dict[str, Any]:
    """Make a strategy that is quick."""
    limits = {
        "maxUnavailable": unavailable,
        "maxSurge": surge,
        "unavailablePeriodSeconds": 3,
    }
    return {"type": "RollingUpdate", "rollingUpdate": limits}


class Campaign(RuleBasedStateMachine):
    """Users who do what they like over REST, with clusters that fail, and workers that do what is due."""

    now = NOW

    def __init__(self) -> None:
        super().__init__()
        with ExitStack() as stack:
            stack.enter_context(rolled_back())
            self.begin()
            self.stack = stack.pop_all()

    def begin(self) -> None:
        """Make clusters, resources, a rolling and a staged placement."""
        forget_caches()
        self.world = World(len(CLUSTERS))
        for name in ("db", STAGED):
            self.world.add_namespace(name)
        self.runs = 0
        self.api = APIClient()
        self.api.force_authenticate(person("campaign", "operator", "approver"))
        for number, name in enumerate(CLUSTERS):
            self.call(
                "put",
                f"clusters/{name}/labels",
                {"stage": "first" if number < 2 else "second"},
            )
        stages = (stage("first", after=True), stage("second", wait="5s", most=2))
        self.call("put", "staged-strategies/careful", strategy_document(*stages))
        for name in ROLLING:
            document = placement_document(
                name, own(name, spec(policy(name, 2, ""), strategy=strategy(1, 1)))
            )
            self.call("put", f"placements/{name}", document)
        self.call(
            "put",
            f"placements/{STAGED}",
            placement_document(STAGED, own(STAGED, staged_spec())),
        )
        self.work()

    def call(self, method: str, path: str, body: object = None) -> int:
        """Send a request; it may be refused, but must not fail."""
        answer = getattr(self.api, method)(f"{API}/{path}", body, format="json")
        assert answer.status_code < 500, (method, path, body, answer.content)
        return int(answer.status_code)

    def work(self) -> None:
        """Run the workers for what is due."""
        Campaign.now = self.world.now
        advance_drains(now=self.world.now)
        self.world.work()
        removals.remove_orphans(
            now=self.world.now, threads=0, clock=lambda: self.world.now
        )
        self.world.work()

    def wait(self, seconds: int) -> None:
        """Advance the clock."""
        self.world.now += timedelta(seconds=seconds)
        observe(now=self.world.now)
        self.end_leaves()

    def end_leaves(self) -> None:
        """Delete the clusters that leave, as the worker does that has told them, and do what is due then."""
        forget(
            MemberCluster.objects.filter(membership=Membership.LEAVING),
            verb="left",
            **self.by_system(),
        )
        self.work()

    def by_system(self) -> dict[str, Any]:
        return {"by": None, "now": self.world.now}

    @rule(
        name=rolling,
        number=st.integers(0, 4),
        tier=tiers,
        limits=st.tuples(limits, limits),
        spread=st.booleans(),
    )
    def save(
        self,
        name: str,
        number: int,
        tier: str,
        limits: tuple[int | str, int | str],
        spread: bool,
    ) -> None:
        wanted = policy(name, number, tier, spread=spread)
        document = placement_document(
            name, own(name, spec(wanted, strategy=strategy(*limits)))
        )
        self.call("put", f"placements/{name}?confirm=unschedule-everything", document)

    @rule(tier=tiers)
    def save_staged(self, tier: str) -> None:
        document = placement_document(
            STAGED, own(STAGED, staged_spec(policy(STAGED, 0, tier)))
        )
        self.call("put", f"placements/{STAGED}?confirm=unschedule-everything", document)

    @rule(name=rolling)
    def delete(self, name: str) -> None:
        self.call("delete", f"placements/{name}")

    @rule()
    def become_staged(self) -> None:
        self.call(
            "put",
            "placements/web",
            placement_document("web", staged_spec(policy("web", 0, ""))),
        )

    @rule(times=st.integers(1, 2))
    def change_resources(self, times: int) -> None:
        for _ in range(times):
            self.world.tag += 1
            for space in self.world.namespaces:
                self.call(
                    "post",
                    "apply",
                    deployment("web", f"web:{self.world.tag}", in_=space),
                )

    @rule(cluster=clusters, cordon=st.booleans())
    def cordon(self, cluster: str, cordon: bool) -> None:
        self.call("post", f"clusters/{cluster}/{'cordon' if cordon else 'uncordon'}")

    @rule(cluster=clusters, begins=st.booleans())
    def drain(self, cluster: str, begins: bool) -> None:
        self.call("post" if begins else "delete", f"clusters/{cluster}/drain")

    @rule(cluster=clusters, tier=st.sampled_from(("first", "second", "third")))
    def label(self, cluster: str, tier: str) -> None:
        self.call("put", f"clusters/{cluster}/labels", {"stage": tier})

    @rule(cluster=clusters, has_taint=st.booleans())
    def taint(self, cluster: str, has_taint: bool) -> None:
        taints = [{"key": "gpu", "effect": "NoSchedule"}] if has_taint else []
        self.call("put", f"clusters/{cluster}/taints", taints)

    @rule(cluster=clusters, at_once=st.booleans())
    def leave(self, cluster: str, at_once: bool) -> None:
        is_there = MemberCluster.objects.filter(name=cluster).exists()
        assert self.call("delete", f"clusters/{cluster}") == (202 if is_there else 404)
        if at_once:
            self.end_leaves()
            assert not MemberCluster.objects.filter(name=cluster).exists()

    @rule(cluster=clusters)
    def rejoin(self, cluster: str) -> None:
        """Add a removed cluster again, empty."""
        if not MemberCluster.objects.filter(name=cluster).exists():
            document = member_document(
                cluster, {"stage": "first" if cluster < "c002" else "second"}
            )
            upsert_clusters(
                [ClusterSpec(document, "simulated", QUICK)], **self.by_system()
            )

    @rule(name=rolling, tier=tiers, leaves_out=st.booleans(), is_there=st.booleans())
    def override(self, name: str, tier: str, leaves_out: bool, is_there: bool) -> None:
        """Change what the clusters of a tier get, or leave it out there; or delete that again."""
        labels = {"stage": tier} if tier else {}
        tinted = overrides.rule(overrides.annotate(tier=tier), **labels)
        wanted = overrides.leaving_out(**labels) if leaves_out else tinted
        document = overrides.for_clusters(
            name, wanted, placement=name, of=overrides.WEB
        )
        if is_there:
            self.call("put", f"overrides/{name}", document)
        else:
            self.call("delete", f"overrides/{name}")

    @rule(moves=st.sampled_from(("fewest", "1", "")))
    def reschedule(self, moves: str) -> None:
        self.call("post", f"placements/db/reschedule?moves={moves}")

    @rule(name=placements, cluster=clusters)
    def evict(self, name: str, cluster: str) -> None:
        self.call("post", f"placements/{name}/evict", {"cluster": cluster})

    @rule(name=placements, least=st.integers(0, 3))
    def budget(self, name: str, least: int) -> None:
        document = {
            **BUDGET,
            "metadata": {"name": name},
            "spec": {"minAvailable": least},
        }
        self.call("put", f"placements/{name}/budget", document)

    @rule(cluster=clusters, fault=st.sampled_from(FAULTS))
    def inject(self, cluster: str, fault: Mapping[str, Any]) -> None:
        faults = [{**fault, "since": self.world.now.isoformat()}]
        assert self.call("put", f"clusters/{cluster}/fault-injection", faults) in (
            200,
            404,
        )

    @rule(cluster=clusters)
    def lose_state(self, cluster: str) -> None:
        faults = [{"kind": "lostState", "since": self.world.now.isoformat()}]
        self.call("put", f"clusters/{cluster}/fault-injection", faults)

    @rule(cluster=clusters)
    def clear(self, cluster: str) -> None:
        self.call("put", f"clusters/{cluster}/fault-injection", [])

    @rule(
        name=placements,
        action=st.sampled_from(("pause", "resume", "stop", "start", "unpin")),
    )
    def control(self, name: str, action: str) -> None:
        self.call("post", f"placements/{name}/{action}")

    @rule(name=rolling, number=st.integers(0, 3))
    def roll_back(self, name: str, number: int) -> None:
        self.call("post", f"placements/{name}/rollback", {"resourceSnapshot": number})

    @rule(
        name=placements,
        action=st.sampled_from(("retry", "abandon-cluster")),
        cluster=clusters,
    )
    def repair(self, name: str, action: str, cluster: str) -> None:
        self.call("post", f"placements/{name}/{action}", {"cluster": cluster})

    @rule(name=placements)
    def begin_staged_run(self, name: str) -> None:
        self.runs += 1
        document = run_document(f"run-{self.runs}", placementName=name)
        self.call("put", f"staged-runs/run-{self.runs}", document)

    @rule(
        data=st.data(),
        action=st.sampled_from(
            ("approve", "skip-wait", "Stop", "Run", "abandon", "retry")
        ),
    )
    def control_staged_run(self, data: st.DataObject, action: str) -> None:
        if not self.runs:
            return
        run = f"staged-runs/run-{data.draw(st.integers(1, self.runs))}"
        if action in ("Stop", "Run"):
            self.call("post", f"{run}/state", {"state": action})
        elif action == "retry":
            self.call("post", f"{run}/retry", {"cluster": data.draw(clusters)})
        else:
            body = (
                {}
                if action == "abandon"
                else {"stage": data.draw(st.sampled_from(("first", "second")))}
            )
            self.call("post", f"{run}/{action}", body)

    @rule(times=st.integers(1, 4), seconds=st.sampled_from((1, 5, 20)))
    def pass_time(self, times: int, seconds: int) -> None:
        for _ in range(times):
            self.wait(seconds)

    @rule(times=st.integers(1, 3))
    def wait_a_little(self, times: int) -> None:
        for _ in range(times):
            self.wait(1)

    @rule(seconds=st.integers(1, 400))
    def wait_long(self, seconds: int) -> None:
        """Advance the clock in one step, as if no worker ran meanwhile."""
        self.wait(seconds)

    @rule(
        path=st.sampled_from(
            ("overview", "rollouts", "staged-runs", "events", "placements", "clusters")
        )
    )
    def read(self, path: str) -> None:
        assert self.call("get", path) == 200

    @rule(name=placements, cluster=clusters)
    def read_one(self, name: str, cluster: str) -> None:
        self.call("get", f"placements/{name}")
        self.call("get", f"clusters/{cluster}")
        self.call("get", f"clusters/{cluster}/restore")
        for run in Rollout.objects.order_by("-pk")[:1]:
            assert (
                self.call("get", f"rollouts/{run.placement_name}/{run.number}") == 200
            )

    @invariant()
    def every_run_goes_on(self) -> None:
        """Every run in progress has a placement whose sync is due, now or later."""
        runs: list[Rollout | StagedRun] = [*Rollout.objects.filter(ended_at=None)]
        runs += StagedRun.objects.filter(ended_at=None)
        for run in runs:
            row = run.placement
            assert row is not None, run
            is_waiting = (
                isinstance(run, StagedRun)
                and row.paused_since is None
                and run.started_at is None
            )
            assert (
                row.needs_sync
                or row.is_due
                or row.rollout_requeue_at
                or is_waiting
                or row.paused_since
            ), run

    @invariant()
    def a_call_is_due_or_all_is_as_recorded(self) -> None:
        for cluster, held in held_by_cluster().items():
            for binding in Binding.objects.filter(cluster_name=cluster).select_related(
                "placement"
            ):
                if Phase(binding.phase) is Phase.REMOVED:
                    assert binding.placement.name not in held, binding
                elif (
                    Phase(binding.phase) not in EMPTY
                    and not binding.placement.needs_sync
                ):
                    waits = binding.phase in (Phase.FAILED, Phase.REMOVE_FAILED)
                    assert binding.next_call_at or waits, (binding, binding.phase)

    @invariant()
    def green_is_available(self) -> None:
        """A placement is healthy only where each of its clusters is available and can be reached."""
        healths = healths_of(list(Placement.objects.all()), now=self.world.now)
        members = MemberCluster.objects.filter(verdict="", unanswered_since=None)
        reachable = set(members.values_list("name", flat=True))
        for row in Placement.objects.filter(pk__in=healths):
            if healths[row.pk].level is HealthLevel.HEALTHY:
                bindings = row.bindings.exclude(state=BindingState.UNSCHEDULED)
                for binding in bindings:
                    assert (binding.phase, binding.cluster_name in reachable) == (
                        Phase.AVAILABLE,
                        True,
                    ), (row, binding)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.converge()
        finally:
            self.stack.close()

    def converge(self) -> None:
        """End what is wrong, what is held and what waits, and let time pass until all is up to date."""
        self.wait(1)
        for name in CLUSTERS:
            self.rejoin(name)
            self.call("put", f"clusters/{name}/taints", [])
            self.call("delete", f"clusters/{name}/drain")
            self.call("put", f"clusters/{name}/fault-injection", [])
            self.call("post", f"clusters/{name}/uncordon")
            self.call(
                "put",
                f"clusters/{name}/labels",
                {"stage": "first" if name < "c002" else "second"},
            )
        for run in StagedRun.objects.filter(ended_at=None):
            self.call("post", f"staged-runs/{run.name}/abandon")
        for row in Placement.objects.all():
            for action in ("resume", "start", "unpin"):  # a deletion can be paused, too
                self.call("post", f"placements/{row.name}/{action}")
            self.call("delete", f"overrides/{row.name}")
            if row.deleting_since:
                continue
            if row.is_staged:
                self.wait(1)
                name = f"last-{row.name}"
                assert (
                    self.call(
                        "put",
                        f"staged-runs/{name}",
                        run_document(name, placementName=row.name),
                    )
                    == 201
                )
            else:
                # With a limit, removals wait for replacements that an under-filled PickN never gets
                # (`rules/lifecycle.md#removals`).
                wanted = {**row.document["spec"], "strategy": strategy("100%", 1)}
                self.call(
                    "put",
                    f"placements/{row.name}",
                    placement_document(row.name, wanted),
                )
        for seconds in (*[5] * 40, *[60] * 40):
            for request in ApprovalRequest.objects.filter(
                approved_at=None, run__ended_at=None
            ):
                self.call(
                    "post",
                    f"staged-runs/{request.run.name}/approve",
                    {"stage": request.stage},
                )
            self.wait(seconds)
            if not self.open_work():
                break
        assert not self.open_work()
        self.wait(300)
        self.wait(300)
        assert not self.open_work()
        assert not self.misplaced()

    def open_work(self) -> list[str]:
        """Return what is not as it should be yet."""
        problems = [f"active: {run}" for run in Rollout.objects.filter(ended_at=None)]
        problems += [
            f"active: {run}" for run in StagedRun.objects.filter(ended_at=None)
        ]
        problems += [
            f"being deleted: {row}"
            for row in Placement.objects.exclude(deleting_since=None)
        ]
        for binding in Binding.objects.select_related("placement"):
            if (
                binding.state == BindingState.UNSCHEDULED
                or binding.phase != Phase.AVAILABLE
            ):
                problems.append(f"{binding.placement} on {binding}: {binding.phase}")
        return problems

    def misplaced(self) -> list[str]:
        """Return the clusters that hold too much or too little."""
        problems = []
        for cluster, held in held_by_cluster().items():
            wanted = set(
                Binding.objects.filter(cluster_name=cluster).values_list(
                    "placement__name", flat=True
                )
            )
            left = set(
                Leftover.objects.filter(cluster_name=cluster).values_list(
                    "placement_name", flat=True
                )
            )
            if held - left != wanted:
                problems.append(
                    f"{cluster}: {sorted(held)} instead of {sorted(wanted)}, left {sorted(left)}"
                )
        return problems


def held_by_cluster() -> dict[str, set[str]]:
    """Return the placements that each simulated cluster holds, whatever faults it has."""
    rows = SimulatedPlacement.objects.values_list(
        "cluster__name", "placement_name", "is_held"
    )
    held: dict[str, set[str]] = {cluster: set() for cluster, _, _ in rows}
    for cluster, placement, is_held in rows:
        held[cluster] |= {placement} if is_held else set()
    return held


START_ACTIONS = controller.start_actions


def start_within_limits(
    run: Rollout, context: RolloutContext, actions: Sequence[Action], *, now: datetime
) -> None:
    """Check what a rollout starts against its limits, from the rows of this moment, and start it."""
    row = Placement.objects.get(pk=context.placement.pk)
    if actions and row.deleting_since is None:
        check_limits(row, actions)
    START_ACTIONS(run, context, actions, now=now)


def check_limits(row: Placement, actions: Sequence[Action]) -> None:
    """`rules/lifecycle.md#starts`: what a rollout starts keeps both inequalities."""
    stale = ("staleHeartbeat", "noAgent")
    members = MemberCluster.objects.exclude(verdict__in=stale).exclude(
        membership=Membership.LEAVING
    )
    reachable = set(members.values_list("name", flat=True))
    bindings = {binding.cluster_name: binding for binding in row.bindings.all()}
    chosen = row.document["spec"]["strategy"]["rollingUpdate"]
    available = {
        name
        for name, binding in bindings.items()
        if binding.phase == Phase.AVAILABLE and name in reachable
    }
    holding = {
        name
        for name, binding in bindings.items()
        if Phase(binding.phase) not in EMPTY and name in reachable
    }
    selected = sum(
        binding.state != BindingState.UNSCHEDULED for binding in bindings.values()
    )
    policy = row.document["spec"].get("policy") or {}
    required = policy.get("numberOfClusters", selected)

    remaining = set(available)
    for action in (
        actions
    ):  # in the order of their starts: after each of them its own inequality holds
        number = required if isinstance(action, Remove) else selected
        if action.cluster in remaining:
            remaining.remove(action.cluster)
            least = max(0, number - _share(chosen["maxUnavailable"], number))
            assert len(remaining) >= least, (row, actions, available, number)
    added = {
        action.cluster for action in actions if not isinstance(action, Remove)
    } - holding
    if added:
        assert len(holding | added) <= selected + _share(
            chosen["maxSurge"], selected
        ), (
            row,
            actions,
            holding,
        )


def _share(limit: int | str, number: int) -> int:
    return (
        limit if isinstance(limit, int) else ceil(int(limit.rstrip("%")) * number / 100)
    )


class _Clock(datetime):
    """The clock of REST: the one of the campaign."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return Campaign.now.astimezone(tz)


@pytest.fixture
def campaign(
    db: None,  # noqa: ARG001
    collected_static: None,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> type[Campaign]:
    """Return the machine, with its clock in REST and its check of what rollouts start."""
    for module in (base, disruption):
        monkeypatch.setattr(module, "datetime", _Clock)
    monkeypatch.setattr(controller, "start_actions", start_within_limits)
    return Campaign


def options(examples: int, steps: int, **more: Any) -> settings:
    """Return how hard to try."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **more,
    )


@pytest.mark.nightly
def test_many_sequences(campaign: type[Campaign]) -> None:
    given = os.environ.get("CAMPAIGN_SEED")
    seeds = (
        [int(given)] if given else [int.from_bytes(os.urandom(4)) for _ in range(40)]
    )
    for number, chosen in enumerate(seeds):
        sys.stdout.write(f"CAMPAIGN_SEED={chosen} ({number + 1} of {len(seeds)})\n")
        forms = [HypothesisPhase.generate, HypothesisPhase.shrink]
        several = options(5, 40, derandomize=False, database=None, phases=forms)
        run_state_machine_as_test(seed(chosen)(campaign), settings=several)
