"""A world with a staged placement: strategies, runs and approvals, written short.

world = StagedWorld(3)
world.staged("canary-first", stage("canary", ["c001"], after=True), stage("prod", ["c000", "c002"]))
world.begin("one")                   a run of that strategy
"""

from collections.abc import Iterable, Mapping
from typing import Any

from clusters.operations.edit import change_labels
from placements.engine.rollout.staged_run import StagedRunPlan, run_from_plain
from placements.models import ApprovalRequest, Binding, StagedRun
from placements.services.rollouts.operations import approve, set_state
from placements.services.rollouts.staged_runs import save_run, save_strategy
from tests.rows import person, spec
from tests.services.rollouts.world import World

VERSION = "placement.kubernetes-fleet.io/v1beta1"


def stage(
    name: str,
    *,
    before: bool = False,
    after: bool = False,
    wait: str = "",
    most: int | str = 1,
) -> dict[str, Any]:
    """Write a stage of the clusters whose label `stage` is its name."""
    tasks = [{"type": "TimedWait", "waitTime": wait}] if wait else []
    tasks += [{"type": "Approval"}] if after else []
    return {
        "name": name,
        "labelSelector": {"matchLabels": {"stage": name}},
        "maxConcurrency": most,
        **({"beforeStageTasks": [{"type": "Approval"}]} if before else {}),
        **({"afterStageTasks": tasks} if tasks else {}),
    }


def strategy_document(
    *stages: Mapping[str, Any], name: str = "careful"
) -> dict[str, Any]:
    """Write a strategy."""
    return {
        "apiVersion": VERSION,
        "kind": "ClusterStagedUpdateStrategy",
        "metadata": {"name": name},
        "spec": {"stages": list(stages)},
    }


def run_document(
    name: str, *, state: str = "Run", index: str | None = None, **more: str
) -> dict[str, Any]:
    """Write a run of the placement web by the strategy careful."""
    given = {"resourceSnapshotIndex": index} if index is not None else {}
    wanted = {
        "placementName": "web",
        "stagedRolloutStrategyName": "careful",
        "state": state,
    }
    return {
        "apiVersion": VERSION,
        "kind": "ClusterStagedUpdateRun",
        "metadata": {"name": name},
        "spec": {**wanted, **given, **more},
    }


def staged_spec(policy: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the spec of a placement that staged runs update."""
    return spec(policy, strategy={"type": "External"})


class StagedWorld(World):
    """Clusters whose label says in which stage they are, a strategy, and one who approves."""

    def __init__(
        self, members: Mapping[str, Iterable[str]], *stages: Mapping[str, Any]
    ) -> None:
        names = sorted(name for several in members.values() for name in several)
        super().__init__(len(names))
        for label, several in members.items():
            for name in several:
                change_labels(
                    [name], put={"stage": label}, replaces=True, by=None, now=self.now
                )
        self.approver = person("ann", "approver")
        save_strategy(strategy_document(*stages), by=None, now=self.now)

    def begin(self, name: str, **more: Any) -> None:
        """Make a run and let the workers begin."""
        save_run(run_document(name, **more), by=None, now=self.now)
        self.work()

    def go_on(self, seconds: int = 10) -> None:
        """Advance the clock."""
        self.pass_time(seconds)

    def approve(self, run: str, stage: str) -> ApprovalRequest:
        """Approve a stage."""
        request = approve(run, stage, by=self.approver, now=self.now)
        self.work()
        return request

    def set(self, run: str, state: str) -> None:
        """Start a run, or stop it."""
        set_state(run, state, by=None, now=self.now)
        self.work()

    def status(self, run: str) -> str:
        """Return the progress of a run."""
        return StagedRun.objects.get(name=run).status

    def plan(self, run: str) -> StagedRunPlan:
        """Return a run as a value."""
        return run_from_plain(StagedRun.objects.get(name=run).plan)

    def why(self, run: str) -> list[str]:
        """Return why a run failed."""
        return [reason.code for reason in self.plan(run).reasons]

    def waits(self, run: str) -> list[str]:
        """Return what a run waits for."""
        return [
            wait["reason"]
            for wait in StagedRun.objects.get(name=run).sync_result["waits"]
        ]

    def indices(self) -> dict[str, int | None]:
        """Return the number of the resource snapshot that each cluster runs."""
        rows = Binding.objects.order_by("cluster_name")
        return dict(rows.values_list("cluster_name", "resource_snapshot__number"))
