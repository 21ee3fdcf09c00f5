"""Every rule on staged updates, overrides, budgets and evictions as documents.

See `rules/lifecycle.md#staged-update-documents`.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.fields import parse_duration
from fleetui.apimachinery.model import IntOrPercent, ManifestModel
from fleetui.apimachinery.yaml import load_documents
from placements.manifests.disruption import (
    budget_errors,
    eviction_change_errors,
    parse_disruption_budget,
    parse_eviction,
)
from placements.manifests.override import override_change_errors
from placements.manifests.placement import parse_placement
from placements.manifests.policy import PlacementType
from placements.manifests.staged_update import (
    approval_change_errors,
    parse_approval_request,
    parse_staged_run,
    parse_staged_strategy,
    run_change_errors,
)
from tests.documents import OURS, PARSERS, Document, changed, errors_in

GOOD: dict[str, Document] = {
    document.data["metadata"]["name"]: document.data
    for name in ("staged-update", "overrides", "budget-and-evictions")
    for document in load_documents((OURS / f"{name}.yaml").read_bytes())
}
STAGES = ("spec", "stages")
BEFORE = (*STAGES, 1, "beforeStageTasks")
AFTER = (*STAGES, 0, "afterStageTasks")
RULE = ("spec", "policy", "overrideRules", 0)
PATCH = (*RULE, "jsonPatchOverrides", 0)
SELECTORS = ("spec", "clusterResourceSelectors")
NAMED = {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
APPROVAL = {"type": "Approval"}


def spoilt(name: str, *keys: str | int, to: Any) -> list[tuple[str, str]]:
    """Spoil a good document in one place and return the faults that its parser finds."""
    document = GOOD[name]
    return errors_in(PARSERS[document["kind"]], changed(document, *keys, to=to))


REFUSED: dict[str, tuple[str, tuple[str | int, ...], Any, str, str]] = {
    "no stages": ("careful", STAGES, [], "spec.stages", "too-few"),
    "a stage name with a dash": (
        *("careful", (*STAGES, 0, "name"), "can-ary"),
        *("spec.stages[0].name", "bad-format"),
    ),
    "a long stage name": (
        "careful",
        (*STAGES, 0, "name"),
        "a" * 64,
        "spec.stages[0].name",
        "too-long",
    ),
    "two stages of one name": (
        *("careful", (*STAGES, 1, "name"), "canary"),
        *("spec.stages[1].name", "duplicate"),
    ),
    "nothing at a time": (
        *("careful", (*STAGES, 0, "maxConcurrency"), 0),
        *("spec.stages[0].maxConcurrency", "out-of-range"),
    ),
    "0 % at a time": (
        *("careful", (*STAGES, 0, "maxConcurrency"), "0%"),
        *("spec.stages[0].maxConcurrency", "out-of-range"),
    ),
    "a wait before a stage": (
        *("careful", (*BEFORE, 0), {"type": "TimedWait", "waitTime": "1h"}),
        *("spec.stages[1].beforeStageTasks[0].type", "misplaced"),
    ),
    "two approvals before a stage": (
        *("careful", BEFORE, [APPROVAL, APPROVAL]),
        *("spec.stages[1].beforeStageTasks", "too-many"),
    ),
    "two approvals after a stage": (
        *("careful", AFTER, [APPROVAL, APPROVAL]),
        *("spec.stages[0].afterStageTasks[1].type", "duplicate"),
    ),
    "a wait without its time": (
        *("careful", (*AFTER, 0), {"type": "TimedWait"}),
        *("spec.stages[0].afterStageTasks[0].waitTime", "required"),
    ),
    "an approval with a time": (
        *("careful", (*AFTER, 1), {"type": "Approval", "waitTime": "1h"}),
        *("spec.stages[0].afterStageTasks[1].waitTime", "conflict"),
    ),
    "no time to wait": (
        *("careful", (*AFTER, 0, "waitTime"), "0s"),
        *("spec.stages[0].afterStageTasks[0].waitTime", "out-of-range"),
    ),
    "no duration": (
        *("careful", (*AFTER, 0, "waitTime"), "1 hour"),
        *("spec.stages[0].afterStageTasks[0].waitTime", "bad-format"),
    ),
    "an unknown state": (
        "web-r4",
        ("spec", "state"),
        "Pause",
        "spec.state",
        "not-one-of",
    ),
    "an index that is none": (
        *("web-r4", ("spec", "resourceSnapshotIndex"), "-1"),
        *("spec.resourceSnapshotIndex", "bad-format"),
    ),
    "an index without quotes": (
        *("web-r4", ("spec", "resourceSnapshotIndex"), 1),
        *("spec.resourceSnapshotIndex", "wrong-type"),
    ),
    "a run of nothing": (
        "web-r4",
        ("spec", "placementName"),
        "",
        "spec.placementName",
        "required",
    ),
    "a run in a namespace": (
        "web-r4",
        ("metadata", "namespace"),
        "a",
        "metadata.namespace",
        "misplaced",
    ),
    "an override of a placement in a namespace": (
        *("tier", ("spec", "placement", "scope"), "Namespaced"),
        *("spec.placement.scope", "not-one-of"),
    ),
    "a resource without a name": (
        *("tier", (*SELECTORS, 0), {"group": "", "version": "v1", "kind": "Namespace"}),
        *("spec.clusterResourceSelectors[0].name", "required"),
    ),
    "resources by label": (
        *("tier", (*SELECTORS, 0), {**NAMED, "labelSelector": {}}),
        *("spec.clusterResourceSelectors[0].labelSelector", "not-supported"),
    ),
    "a resource twice": (
        *("tier", SELECTORS, [NAMED, NAMED]),
        *("spec.clusterResourceSelectors[1]", "duplicate"),
    ),
    "a kind inside namespaces": (
        *("tier", (*SELECTORS, 0, "kind"), "ConfigMap"),
        *("spec.clusterResourceSelectors[0].kind", "namespaced-kind"),
    ),
    "21 resources": (
        *("tier", SELECTORS, [{**NAMED, "name": f"n{number}"} for number in range(21)]),
        *("spec.clusterResourceSelectors", "too-many"),
    ),
    "a term without labels": (
        *("tier", (*RULE, "clusterSelector", "clusterSelectorTerms", 0), {}),
        *(
            "spec.policy.overrideRules[0].clusterSelector.clusterSelectorTerms[0].labelSelector",
            "required",
        ),
    ),
    "a term with properties": (
        "tier",
        (*RULE, "clusterSelector", "clusterSelectorTerms", 0, "propertySelector"),
        {"matchExpressions": []},
        "spec.policy.overrideRules[0].clusterSelector.clusterSelectorTerms[0].propertySelector",
        "not-supported",
    ),
    "a rule that deletes with patches": (
        *("tier", (*RULE, "overrideType"), "Delete"),
        *("spec.policy.overrideRules[0].jsonPatchOverrides", "conflict"),
    ),
    "a rule without patches": (
        *("tier", (*RULE, "jsonPatchOverrides"), []),
        *("spec.policy.overrideRules[0].jsonPatchOverrides", "too-few"),
    ),
    "a value to remove": (
        *("tier", (*PATCH, "op"), "remove"),
        *("spec.policy.overrideRules[0].jsonPatchOverrides[0].value", "conflict"),
    ),
    "nothing to add": (
        *("tier", PATCH, {"op": "add", "path": "/spec/a"}),
        *("spec.policy.overrideRules[0].jsonPatchOverrides[0].value", "required"),
    ),
    "an override outside namespaces": (
        *("replicas", ("metadata",), {"name": "replicas"}),
        *("metadata.namespace", "required"),
    ),
    "no budget": ("web", ("spec",), {}, "spec", "required"),
    "two budgets": (
        "web",
        ("spec", "maxUnavailable"),
        1,
        "spec.minAvailable",
        "conflict",
    ),
    "a negative budget": (
        "shop",
        ("spec", "maxUnavailable"),
        -1,
        "spec.maxUnavailable",
        "out-of-range",
    ),
    "an eviction from nowhere": (
        *("web-off-bravelion", ("spec",), {"placementName": "web"}),
        *("spec.clusterName", "required"),
    ),
    "an unknown field": (
        "web-off-bravelion",
        ("spec", "force"),
        True,
        "spec.force",
        "unknown-field",
    ),
    "an old version of a run": (
        *("web-r4", ("apiVersion",), "placement.kubernetes-fleet.io/v1alpha1"),
        *("apiVersion", "api-version-not-supported"),
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_refuses_one_fault_where_it_is(
    case: tuple[str, tuple[str | int, ...], Any, str, str],
) -> None:
    name, keys, to, path, code = case

    assert spoilt(name, *keys, to=to) == [(path, code)]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("spec", "bad-format"),
        ("/spec//a", "bad-format"),
        ("/spec/", "bad-format"),
        ("/", "bad-format"),
        ("/spec/~2", "bad-format"),
        ("/kind", "not-supported"),
        ("/apiVersion", "not-supported"),
        ("/status/phase", "not-supported"),
        ("/metadata", "not-supported"),
        ("/metadata/name", "not-supported"),
        ("/metadata/finalizers/0", "not-supported"),
    ],
)
def test_refuses_paths_that_overrides_may_not_touch(path: str, code: str) -> None:
    place = "spec.policy.overrideRules[0].jsonPatchOverrides[0].path"

    assert spoilt("tier", *PATCH, "path", to=path) == [(place, code)]


def test_all_faults_of_a_document_come_at_once() -> None:
    document = changed(
        GOOD["careful"], *STAGES, 0, to={"name": "A", "maxConcurrency": 0, "order": 1}
    )

    assert errors_in(parse_staged_strategy, document) == [
        ("spec.stages[0].name", "bad-format"),
        ("spec.stages[0].maxConcurrency", "out-of-range"),
        ("spec.stages[0].order", "unknown-field"),
    ]


def test_a_strategy_says_what_its_stages_do() -> None:
    canary, production = parse_staged_strategy(GOOD["careful"]).spec.stages

    assert (canary.max_concurrency, canary.wait) == (
        IntOrPercent(1),
        timedelta(minutes=90),
    )
    assert (canary.needs_approval_before, canary.needs_approval_after) == (False, True)
    assert (production.needs_approval_before, production.needs_approval_after) == (
        True,
        False,
    )
    assert production.max_concurrency.at_least_one_of(3) == 2
    assert production.max_concurrency.at_least_one_of(1) == 1


def test_an_approval_request_shows_whether_it_was_granted() -> None:
    granted = GOOD["web-r4-after-canary"]

    assert parse_approval_request(granted).is_approved
    assert not parse_approval_request({**granted, "status": {}}).is_approved


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("1ns", timedelta(microseconds=1)),
    ],
)
def test_reads_durations(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "5", "-1h", "1h 30m", "1d", "h", "999999999999h"])
def test_knows_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ("Initialize", "Run", True),
        ("Run", "Stop", True),
        ("Stop", "Run", True),
        ("Initialize", "Stop", False),
        ("Run", "Initialize", False),
        ("Stop", "Initialize", False),
    ],
)
def test_moves_of_a_run(before: str, after: str, allowed: bool) -> None:
    old, new = (
        parse_staged_run(changed(GOOD["web-r4"], "spec", "state", to=state))
        for state in (before, after)
    )

    assert [error.path for error in run_change_errors(old, new)] == (
        [] if allowed else ["spec.state"]
    )


def test_what_never_changes() -> None:
    run = parse_staged_run(GOOD["web-r4"])
    other = parse_staged_run(
        changed(GOOD["web-r4"], "spec", "resourceSnapshotIndex", to=None)
    )
    request = parse_approval_request(GOOD["web-r4-after-canary"])
    elsewhere = changed(
        GOOD["web-r4-after-canary"], "spec", "targetStage", to="production"
    )
    eviction = parse_eviction(GOOD["web-off-bravelion"])
    farther = changed(GOOD["web-off-bravelion"], "spec", "clusterName", to="smartfish")
    override = PARSERS["ClusterResourceOverride"](GOOD["tier"])
    for_all = PARSERS["ClusterResourceOverride"](
        changed(GOOD["tier"], "spec", "placement", to=None)
    )

    errors = [
        *run_change_errors(run, other),
        *approval_change_errors(request, parse_approval_request(elsewhere)),
        *eviction_change_errors(eviction, parse_eviction(farther)),
        *override_change_errors(override, for_all),
    ]

    assert {error.code for error in errors} == {"immutable"}
    assert [error.path for error in errors] == [
        "spec.resourceSnapshotIndex",
        "spec.targetStage",
        "spec.clusterName",
        "spec.placement",
    ]


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({"maxUnavailable": 1}, ["spec.maxUnavailable"]),
        ({"minAvailable": "50%"}, ["spec.minAvailable"]),
        ({"minAvailable": 3}, []),
    ],
)
def test_a_placement_of_every_cluster_takes_a_plain_number_only(
    spec: Document, paths: list[str]
) -> None:
    budget = parse_disruption_budget({**GOOD["web"], "spec": spec}).spec

    assert [
        error.path for error in budget_errors(budget, PlacementType.PICK_ALL)
    ] == paths
    assert budget_errors(budget, PlacementType.PICK_N) == []


def test_another_kind_is_named() -> None:
    with pytest.raises(InvalidManifest) as raised:
        parse_placement(GOOD["careful"])

    assert str(raised.value) == (
        "kind: Unsupported kind ClusterStagedUpdateStrategy: must be a placement, "
        "not a staged update strategy (allowed: ClusterResourcePlacement or ResourcePlacement)"
    )


def _models(base: type[ManifestModel] = ManifestModel) -> Iterator[type[ManifestModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def test_no_field_takes_an_integer_as_text() -> None:
    """As the webhooks of a hub: text is a percentage, in every field that takes a number or a percentage."""
    fields = {
        (model, name)
        for model in _models()
        for name, field in model.model_fields.items()
        if IntOrPercent.__name__ in str(field.annotation)
    }

    assert {name for _, name in fields} == {
        "max_unavailable",
        "max_surge",
        "min_available",
        "max_concurrency",
        "clusters_per_decision_group",
    }
    for model, name in fields:
        alias = model.model_fields[name].alias or name
        with pytest.raises(ValidationError, match="text must be a percentage"):
            model.model_validate({alias: "5"})
