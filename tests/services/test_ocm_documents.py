"""Placements of Open Cluster Management are saved as written, decided, and come back as they were."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from clusters.drivers.kubernetes.targets import inventory_name
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from placements.manifests.placement import parse_placement
from placements.models import Placement, PolicySnapshot, Resource
from placements.services.decisions.compare_semantics import side_by_side
from placements.services.decisions.records import decision_of
from placements.services.editor.preview import preview
from placements.services.editor.validation import PlacementDraft
from placements.services.placements import delete_placement, save_placement
from placements.services.resources.operations import apply_resources
from placements.services.results import OperationResult, stored_document
from placements.services.status import manifest_of
from tests.commands import call_command
from tests.ocm_documents import (
    NAMESPACE,
    RESOURCES,
    STRATEGY,
    needs_proposal,
    ocm_document,
    proposed,
    proposed_document,
    regional,
    with_resources,
)
from tests.rows import (
    NOW,
    all_joined,
    joined,
    member_document,
    namespace,
    placed,
    placement_document,
    run_due,
    spec,
)

pytestmark = pytest.mark.django_db

FIRST = {"us-east-1": 4, "us-west-1": 4, "cn-hangzhou": 4, "cn-shenzhen": 4}
SECOND = {"us-east-1": 6, "us-west-1": 6, "cn-hangzhou": 4, "cn-shenzhen": 4}
EAST = {
    "requiredClusterSelector": {"labelSelector": {"matchLabels": {"region": "east"}}}
}
SOFT = {"spreadConstraints": [{"topologyKey": "region"}]}


def save(document: dict[str, Any]) -> Placement:
    """Save a document and decide it."""
    save_placement(document, by=None, now=NOW)
    run_due()
    return Placement.objects.get(name=document["metadata"]["name"])


def faults_of(document: dict[str, Any]) -> list[FieldError]:
    """Return the faults that saving has, having changed nothing."""
    before = list(Placement.objects.values("name", "document", "revision"))
    with pytest.raises(InvalidManifest) as caught:
        save_placement(document, by=None, now=NOW)
    assert list(Placement.objects.values("name", "document", "revision")) == before
    return list(caught.value.errors)


def by_region(names: list[str]) -> dict[str, int]:
    """Count clusters by the region in their names."""
    return dict(Counter(name.rpartition("-")[0] for name in names))


def condition(placement: Placement, sort: str) -> tuple[str, str, str]:
    """Return status, reason and message of one condition."""
    entry = {
        one["type"]: one for one in manifest_of(placement)["status"]["conditions"]
    }[sort]
    return entry["status"], entry["reason"], entry["message"]


@pytest.mark.servers
@needs_proposal
@pytest.mark.parametrize(
    ("number", "fleet", "chosen"),
    [
        (
            1,
            FIRST,
            {"us-east-1": 4, "cn-hangzhou": 4, "us-west-1": 1, "cn-shenzhen": 1},
        ),
        (
            2,
            SECOND,
            {"us-east-1": 3, "us-west-1": 2, "cn-hangzhou": 3, "cn-shenzhen": 2},
        ),
    ],
)
def test_the_examples_of_the_proposal_as_they_stand(
    number: int, fleet: dict[str, int], chosen: dict[str, int]
) -> None:
    upsert_clusters(
        [ClusterSpec(member_document(*one)) for one in regional(fleet)],
        by=None,
        now=NOW,
    )
    document = proposed_document(number)

    foreseen = preview(parse_placement(document))
    placement = save(document)

    assert by_region(list(foreseen.joins)) == chosen
    assert by_region(placed(placement)) == chosen
    assert placement.document == document
    assert (placement.semantics, placement.number_of_clusters) == ("ocm", 10)


def test_entries_with_nothing_in_them_are_left_out_with_a_warning() -> None:
    weights = {"type": "Affinity", "topologyKey": "zone", "topologyWeights": [None]}
    document = ocm_document(
        version="v1alpha1", predicates=[None, EAST], spreadConstraints=[weights]
    )

    saved = save_placement(document, by=None, now=NOW)

    messages = {
        warning.path: warning.message
        for warning in saved.warnings
        if warning.code == "empty-entry"
    }
    assert messages == {
        "spec.predicates[0]": "empty entry, requires nothing: ignored",
        "spec.spreadConstraints[0].topologyWeights[0]": "empty entry, prefers nothing: ignored",
    }
    assert "affinityTerms" not in parse_placement(document).spread_options
    assert saved.object.label_keys_read == ["*", "region"]


def test_without_a_number_it_takes_all_that_pass() -> None:
    joined("a", region="east")
    joined("b", region="west")
    joined("c", region="east")

    placement = save(ocm_document(predicates=[EAST]))

    assert placed(placement) == ["a", "c"]
    assert placement.placement_type == "PickAll"


def test_a_label_or_a_claim_of_any_predicate_lets_a_cluster_pass() -> None:
    claims = {
        "matchExpressions": [{"key": "vendor", "operator": "In", "values": ["k3s"]}]
    }
    joined("a", region="east")
    joined("b", region="west")
    document = ocm_document(
        predicates=[{"requiredClusterSelector": {"claimSelector": claims}}, EAST]
    )

    placement = save(document)

    assert placed(placement) == ["a"]
    assert placement.property_names_read == ["vendor"]


def test_tolerates_taints_and_may_stop_to() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    upsert_clusters(
        [
            ClusterSpec(member_document("a", taints=[taint])),
            ClusterSpec(member_document("b")),
        ],
        by=None,
        now=NOW,
    )
    tolerations = [{"key": "gpu", "operator": "Exists", "effect": "NoSelect"}]

    placement = save(ocm_document(tolerations=tolerations))
    before = placed(placement)
    save(ocm_document())

    assert before == ["a", "b"]
    assert placed(placement) == ["b"]


@pytest.mark.nightly
def test_the_number_may_come_and_go_since_every_cycle_selects_again() -> None:
    all_joined("a", "b", "c")

    first = placed(save(ocm_document(numberOfClusters=2)))
    second = placed(save(ocm_document()))
    third = placed(save(ocm_document(numberOfClusters=1)))

    assert (first, second, third) == (["a", "b"], ["a", "b", "c"], ["a"])
    assert PolicySnapshot.objects.count() == 3


def test_the_merged_api_is_kept_in_its_own_words() -> None:
    joined("a", region="east")
    joined("b", region="east")
    joined("c", region="west")
    document = ocm_document(numberOfClusters=2, spreadPolicy=SOFT, clusterSets=["prod"])

    saved = save_placement(document, by=None, now=NOW)
    run_due()

    assert placed(saved.object) == ["a", "c"]
    assert saved.object.document == document


def test_prioritizers_weigh() -> None:
    policy = {
        "mode": "Exact",
        "configurations": [{"scoreCoordinate": {"builtIn": "Steady"}, "weight": -1}],
    }
    all_joined("a", "b")

    options = parse_placement(ocm_document(prioritizerPolicy=policy)).spread_options
    first = placed(save(ocm_document(numberOfClusters=1, prioritizerPolicy=policy)))

    assert (options["steadyWeight"], options["balanceWeight"]) == (-100, 0)
    assert first == ["a"]


def test_options_may_stand_in_the_annotation() -> None:
    joined("a", region="east")
    all_joined("b", "c")
    options = {"unsetPolicy": "exclude"}
    hard = [{"type": "Even", "topologyKey": "region", "maxSkew": 5}]

    document = ocm_document(
        version="v1alpha1",
        annotations={"fleetui.io/spread-options": options},
        numberOfClusters=2,
        spreadConstraints=hard,
    )

    assert placed(save(document)) == ["a"]


def test_the_same_again_changes_nothing_and_a_status_is_not_kept() -> None:
    document = ocm_document(numberOfClusters=1)
    saved = save_placement(
        {**document, "status": {"numberOfSelectedClusters": 7}}, by=None, now=NOW
    )

    assert saved.object.document == document
    assert (
        save_placement(document, by=None, now=NOW).result is OperationResult.UNCHANGED
    )


def test_without_resources_it_says_how_to_select_some() -> None:
    apply_resources([namespace("shop")], by=None, now=NOW)

    saved = save_placement(ocm_document(), by=None, now=NOW)
    selected = save_placement(
        with_resources(ocm_document("other"), NAMESPACE), by=None, now=NOW
    )

    (warning,) = [
        manifest_warning
        for manifest_warning in saved.warnings
        if manifest_warning.code == "no-resources"
    ]
    assert warning.path == 'metadata.annotations["fleetui.io/resource-selectors"]'
    assert "no resources are placed" in warning.message
    assert [manifest_warning.code for manifest_warning in selected.warnings] == []


@pytest.mark.parametrize(
    ("document", "path", "code"),
    [
        (ocm_document(numberOfClusters=-1), "spec.numberOfClusters", "out-of-range"),
        (ocm_document(numberOfCluster=1), "spec.numberOfCluster", "unknown-field"),
        (ocm_document("Web"), "metadata.name", "bad-format"),
        (ocm_document("x" * 64), "metadata.name", "too-long"),
        (ocm_document(version="v1beta2"), "apiVersion", "api-version-not-supported"),
        (ocm_document(predicates=[7]), "spec.predicates[0]", "wrong-type"),
        (
            ocm_document(annotations={RESOURCES: "["}),
            f'metadata.annotations["{RESOURCES}"]',
            "bad-format",
        ),
        (
            ocm_document(annotations={RESOURCES: {}}),
            f'metadata.annotations["{RESOURCES}"]',
            "bad-format",
        ),
        (
            with_resources(ocm_document(), {**NAMESPACE, "kind": ""}),
            f'metadata.annotations["{RESOURCES}"][0].kind',
            "required",
        ),
        (
            with_resources(ocm_document(), {**NAMESPACE, "name": "kube-system"}),
            f'metadata.annotations["{RESOURCES}"][0].name',
            "reserved-namespace",
        ),
        (
            with_resources(ocm_document(), NAMESPACE, NAMESPACE),
            f'metadata.annotations["{RESOURCES}"][1]',
            "duplicate",
        ),
        (
            ocm_document(annotations={STRATEGY: {"rollingUpdate": {"maxSurge": "x"}}}),
            f'metadata.annotations["{STRATEGY}"].rollingUpdate.maxSurge',
            "bad-format",
        ),
        (
            ocm_document(annotations={STRATEGY: "[]"}),
            f'metadata.annotations["{STRATEGY}"]',
            "bad-format",
        ),
        (
            ocm_document(annotations={"fleetui.io/spread-options": {"mode": "loose"}}),
            'metadata.annotations["fleetui.io/spread-options"].mode',
            "not-one-of",
        ),
        (
            ocm_document(annotations={"fleetui.io/semantics": "fleet"}),
            'metadata.annotations["fleetui.io/semantics"]',
            "conflict",
        ),
        (
            ocm_document(annotations={"fleetui.io/approver-differs": "maybe"}),
            'metadata.annotations["fleetui.io/approver-differs"]',
            "bad-format",
        ),
    ],
)
def test_what_is_wrong_has_its_place_in_the_document(
    document: dict[str, Any], path: str, code: str
) -> None:
    apply_resources([namespace("shop")], by=None, now=NOW)

    assert (path, code) in [(fault.path, fault.code) for fault in faults_of(document)]


def test_all_parts_are_looked_at_before_it_is_refused() -> None:
    annotations = {RESOURCES: "{", STRATEGY: "7", "fleetui.io/spread-options": "no"}

    errors = faults_of(ocm_document(annotations=annotations, numberOfClusters="two"))

    assert len(errors) == 4


def test_one_name_in_two_namespaces_and_without_one() -> None:
    """Each has its own clusters and resources, which its namespace does not limit."""
    joined("a")
    joined("b")
    apply_resources([namespace("shop")], by=None, now=NOW)
    written = [
        with_resources(
            ocm_document("web", namespace="blue", numberOfClusters=1), NAMESPACE
        ),
        with_resources(
            ocm_document("web", namespace="green", numberOfClusters=2), NAMESPACE
        ),
        placement_document("web", spec()),
    ]

    for document in written:
        save_placement(document, by=None, now=NOW)
    run_due()

    rows = {placement.full_name: placement for placement in Placement.objects.all()}
    assert {name: placement.document for name, placement in rows.items()} == {
        "blue/web": written[0],
        "green/web": written[1],
        "web": written[2],
    }
    assert [rows[name].placed_count for name in ("blue/web", "green/web")] == [1, 2]
    assert [rows[name].selected_count for name in ("blue/web", "green/web")] == [1, 1]
    assert rows["blue/web"].resource_namespace == ""
    status = manifest_of(rows["green/web"])["status"]
    assert "PlacementSatisfied" in {one["type"] for one in status["conditions"]}


def test_a_namespace_must_be_a_dns_label() -> None:
    (error,) = faults_of(ocm_document(namespace="Blue"))

    assert (error.path, error.code) == ("metadata.namespace", "bad-format")


def store(document: dict[str, Any]) -> None:
    save_placement(document, by=None, now=NOW)


def inside(name: str, *, namespace: str) -> dict[str, Any]:
    selector = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}
    document = placement_document(name, {"resourceSelectors": [selector]})
    return {
        **document,
        "kind": "ResourcePlacement",
        "metadata": {"name": name, "namespace": namespace},
    }


def test_one_beside_a_placement_of_its_name_has_a_full_name_of_its_own() -> None:
    documents = [
        placement_document("web", spec()),
        inside("web", namespace="blue"),
        ocm_document("web", namespace="blue"),
        ocm_document("web", namespace="green"),
        ocm_document("web"),
    ]
    for document in documents:
        store(document)

    names = ["web", "blue/web", "blue/web~ocm", "green/web", "web~ocm"]
    saved = dict(Placement.objects.values_list("full_name", "document"))
    assert saved == dict(zip(names, map(stored_document, documents), strict=True))
    hubs_own = "0123456789"
    assert len({inventory_name(hubs_own, name) for name in names}) == 5
    assert all(
        re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", inventory_name(hubs_own, name))
        for name in names
    )

    store(ocm_document("web", namespace="blue", numberOfClusters=3))
    delete_placement("blue/web", by=None, now=NOW)
    store(ocm_document("web", namespace="blue", numberOfClusters=4))
    store(ocm_document("web", namespace="blue", numberOfClusters=4))

    assert Placement.objects.get(full_name="blue/web~ocm").revision == 3
    assert not Placement.objects.filter(full_name="blue/web").exists()


def test_the_name_of_one_beside_another_placement_must_fit() -> None:
    store(placement_document("a" * 60, spec()))

    (error,) = faults_of(ocm_document("a" * 60))

    assert (error.path, error.code, error.allowed) == (
        "metadata.name",
        "too-long",
        "59 characters",
    )


def test_no_placement_of_kubefleet_replaces_one() -> None:
    store(ocm_document())
    store(ocm_document("web", namespace="blue"))

    (error,) = faults_of(placement_document("shop", spec()))
    (error_inside,) = faults_of(inside("web", namespace="blue"))

    assert (error.path, error_inside.path) == ("kind", "kind")
    assert (
        error.message
        == "shop is a Placement already and cannot become a ClusterResourcePlacement"
    )
    assert (
        error_inside.message
        == "blue/web is a Placement already and cannot become a ResourcePlacement"
    )
    assert (
        "delete the Placement and apply both: it is blue/web~ocm then"
        in error_inside.allowed
    )


def test_a_staged_one_stays_staged() -> None:
    save(ocm_document(annotations={STRATEGY: {"type": "External"}}))

    (error,) = faults_of(ocm_document())

    assert (error.path, error.code) == (
        f'metadata.annotations["{STRATEGY}"].type',
        "immutable",
    )


def test_our_annotations_for_it_are_refused_where_the_spec_has_a_field() -> None:
    document = placement_document("web", spec(), resource_selectors="[]")

    (error,) = faults_of(document)

    assert (error.code, error.allowed) == ("misplaced", "spec.resourceSelectors")


@pytest.mark.nightly
def test_the_status_speaks_as_open_cluster_management_does() -> None:
    all_joined("a", "b")
    pending = save_placement(ocm_document(numberOfClusters=3), by=None, now=NOW).object
    before = condition(pending, "PlacementSatisfied")
    run_due()
    pending.refresh_from_db()

    assert before[:2] == ("Unknown", "SchedulePending")
    assert condition(pending, "PlacementSatisfied") == (
        "False",
        "NotAllDecisionsScheduled",
        "1 cluster decisions unscheduled",
    )
    assert condition(pending, "PlacementMisconfigured")[:2] == (
        "False",
        "Succeedconfigured",
    )
    assert manifest_of(pending)["status"]["numberOfSelectedClusters"] == 2


def test_the_status_distinguishes_why_nothing_is_selected() -> None:
    empty = condition(save(ocm_document("one")), "PlacementSatisfied")
    joined("a", region="west")
    unmatched = condition(
        save(ocm_document("two", predicates=[EAST])), "PlacementSatisfied"
    )
    satisfied = condition(save(ocm_document("three")), "PlacementSatisfied")
    nothing = condition(
        save(ocm_document("four", numberOfClusters=0)), "PlacementSatisfied"
    )

    assert [one[:2] for one in (empty, unmatched, satisfied, nothing)] == [
        ("False", "AllManagedClusterSetsEmpty"),
        ("False", "NoManagedClusterMatched"),
        ("True", "AllDecisionsScheduled"),
        ("True", "AllDecisionsScheduled"),
    ]


def test_selectors_that_come_to_be_at_fault_are_a_misconfiguration() -> None:
    apply_resources([namespace("shop")], by=None, now=NOW)
    placement = save(with_resources(ocm_document(), NAMESPACE))
    Placement.objects.update(
        selection_faults=[{"path": "", "code": "x", "message": "shop was deleted"}]
    )
    placement.refresh_from_db()

    assert condition(placement, "PlacementMisconfigured") == (
        "True",
        "Misconfigured",
        "shop was deleted",
    )


def test_its_decision_compares_under_all_four_semantics() -> None:
    joined("a", region="east")
    joined("b", region="east")
    joined("c", region="west")
    even = {"type": "Even", "topologyKey": "region", "maxSkew": 1, "order": 1}
    prefer = {
        "type": "Affinity",
        "topologyKey": "region",
        "topologyWeights": [{"weight": 20, "operator": "In", "values": ["east"]}],
    }
    save(
        ocm_document(
            version="v1alpha1", numberOfClusters=2, spreadConstraints=[even, prefer]
        )
    )
    decision = decision_of(
        Placement.objects.get().decisions.select_related("record").get()
    )

    sides = side_by_side(decision, name="shop")

    assert set(sides.comparison.decisions) == set(Semantics)
    assert all(
        set(one.picked_names) in ({"a", "c"}, {"b", "c"})
        for one in sides.comparison.decisions.values()
    )
    (left_out,) = sides.warnings[Semantics.FLEET]
    assert (left_out.code, left_out.path) == ("left-out", "spec")
    assert sides.warnings[Semantics.OCM] == ()


@pytest.mark.servers
def test_it_is_applied_and_exported_as_it_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    all_joined("a", "b")
    document = with_resources(
        ocm_document(numberOfClusters=1, spreadPolicy=SOFT), NAMESPACE
    )
    file = tmp_path / "all.yaml"
    file.write_text("---\n".join(map(dump_yaml, [document, namespace("shop")])))

    call_command("apply", "-f", str(file))
    output = capsys.readouterr().out
    run_due()
    call_command("export", "placements", "shop", "--no-status")
    (exported,) = load_documents(capsys.readouterr().out)
    call_command("export", "placements", "-o", "json")
    (with_status,) = json.loads(capsys.readouterr().out)["items"]

    assert output.splitlines() == [
        "placement shop created",
        "resource /Namespace//shop created",
    ]
    assert exported.data == document
    assert with_status["status"]["numberOfSelectedClusters"] == 1
    assert Resource.objects.count() == 1


def test_a_fault_in_a_file_has_its_line_and_nothing_is_applied(tmp_path: Path) -> None:
    text = dump_yaml(ocm_document(numberOfClusters="many"))
    file = tmp_path / "bad.yaml"
    file.write_text(f"{dump_yaml(namespace('shop'))}---\n{text}")
    line = next(
        at for at, line in enumerate(file.read_text().splitlines(), 1) if "many" in line
    )

    pattern = rf"spec\.numberOfClusters \(line {line}\): Placement shop: "
    with pytest.raises(CommandError, match=pattern) as caught:
        call_command("apply", "-f", str(file))

    assert caught.value.returncode == 2
    assert not Placement.objects.exists()
    assert not Resource.objects.exists()


def test_a_placement_of_another_group_is_a_resource(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {**ocm_document(), "apiVersion": "example.com/v1"}
    file = tmp_path / "other.yaml"
    file.write_text("---\n".join(map(dump_yaml, [namespace("apps"), other])))

    call_command("apply", "-f", str(file))

    assert "created" in capsys.readouterr().out
    assert not Placement.objects.exists()


def test_it_is_no_resource_to_be_placed() -> None:
    with pytest.raises(
        InvalidManifest,
        match="Placement: a placement is not a resource that can be placed",
    ):
        apply_resources([ocm_document()], by=None, now=NOW)


@needs_proposal
def test_the_lines_of_the_proposal_are_those_of_the_text() -> None:
    text = proposed(1).replace("maxSkew: 2", "maxSkew: two")

    (error,) = PlacementDraft.parse(text).errors

    assert (error.path, error.line) == ("spec.spreadConstraints[0].maxSkew", 21)
