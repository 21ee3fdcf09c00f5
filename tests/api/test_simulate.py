"""Previews and simulations: decided and explained, and nothing saved."""

import pytest
from rest_framework.test import APIClient

from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.apimachinery.yaml import load_documents
from placements.manifests.placement import parse_placement
from placements.models import Decision, Placement
from placements.services.checks import quick_findings
from placements.services.editor.preview import preview as preview_of
from tests.documents import member
from tests.rows import (
    NOW,
    all_joined,
    decided,
    joined,
    member_document,
    pick_n_spec,
    placement_document,
)
from tests.test_readme import ROOT

PREVIEW, SIMULATE = "/api/v1/placements/preview", "/api/v1/simulate"
SPREAD = {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}

pytestmark = pytest.mark.django_db


def example(name: str) -> object:
    """Read an example of the documentation."""
    documents = load_documents(
        (ROOT / "docs" / "examples" / name).read_text(encoding="utf-8")
    )
    return (
        documents[0].data
        if len(documents) == 1
        else [document.data for document in documents]
    )


def test_a_preview_lists_joins_leaves_and_stays(reader: APIClient) -> None:
    all_joined("a", "b", "c")
    decided("web", pick_n_spec(2))

    more = reader.post(PREVIEW, placement_document("web", pick_n_spec(3))).json()
    fewer = reader.post(PREVIEW, placement_document("web", pick_n_spec(1))).json()

    assert (more["joins"], more["stays"]) == (
        {"count": 1, "first": ["a"]},
        {"count": 2, "first": ["b", "c"]},
    )
    assert (fewer["leaves"], fewer["stays"]["first"]) == (
        {"count": 1, "first": ["b"]},
        ["c"],
    )
    assert more["isIncremental"] is True
    assert Decision.objects.count() == 1


def test_a_preview_is_what_saving_then_decides(api: APIClient) -> None:
    joined("a", region="east")
    joined("b", region="west")
    document = placement_document(
        "web", pick_n_spec(2, topologySpreadConstraints=[SPREAD])
    )

    preview = api.post(PREVIEW, document).json()

    assert Placement.objects.count() == 0
    decided("web", document["spec"])
    assert api.get(f"/api/v1/decisions/{preview['decision']}").status_code == 200
    assert [one["cluster"] for one in preview["picked"]["first"]] == ["b", "a"]
    assert preview["spread"] == [
        {
            "topologyKey": "region",
            "maxSkew": 1,
            "hard": True,
            "skew": 0,
            "groupsCount": 2,
            "groups": [{"group": "east", "count": 1}, {"group": "west", "count": 1}],
        }
    ]


def test_a_preview_of_a_bad_draft_says_what_is_wrong(reader: APIClient) -> None:
    answer = reader.post(PREVIEW, placement_document("web", pick_n_spec(-1)))

    assert answer.status_code == 422
    assert answer.json()["faults"][0]["path"] == "spec.policy.numberOfClusters"


def test_a_preview_shows_twenty_of_many(reader: APIClient) -> None:
    all_joined(*(f"c{number:03}" for number in range(30)))

    preview = reader.post(PREVIEW, placement_document("web", pick_n_spec(30))).json()

    assert (preview["picked"]["count"], len(preview["picked"]["first"])) == (30, 20)
    assert (preview["joins"]["count"], len(preview["joins"]["first"])) == (30, 20)


@pytest.mark.nightly
def test_simulate_answers_as_the_command_does(reader: APIClient) -> None:
    body = {
        "clusters": example("nine.yaml"),
        "placement": example("web.yaml"),
        "step": 2,
        "why": "bravelion",
    }

    answer = reader.post(SIMULATE, body).json()

    assert answer["id"] == "d-8aa0bd845c3f6a95cdf16b150d16ee61"
    assert answer["rounds"][1]["winner"] == "smartfish"
    assert answer["rounds"][1]["candidates"][0]["cluster"] == "smartfish"
    assert answer["why"]["cluster"] == "bravelion"


def test_simulate_compares_all_semantics(reader: APIClient) -> None:
    body = {
        "clusters": example("nine.yaml"),
        "placement": example("web.yaml"),
        "semantics": "all",
    }

    answer = reader.post(SIMULATE, body).json()

    assert list(answer["semantics"]) == ["fleet", "kubefleet", "ocm", "kubernetes"]


def test_simulate_takes_bindings(reader: APIClient) -> None:
    body = {
        "clusters": [{"name": "a"}, {"name": "b"}],
        "placement": placement_document("web", pick_n_spec(1)),
        "bindings": [{"cluster": "a", "state": "Bound", "policy": "current"}],
    }

    assert reader.post(SIMULATE, body).json()["kept"] == ["a"]


@pytest.mark.parametrize(
    ("change", "path", "document"),
    [
        ({"clusters": [member(taints=[{}])]}, "spec.taints[0].key", "clusters"),
        (
            {"placement": placement_document("web", {})},
            "spec.resourceSelectors",
            "placement",
        ),
        ({"bindings": [{}]}, "[0].cluster", "bindings"),
        ({"step": 99}, "step", None),
        ({"why": "missing"}, "why", None),
        ({"semantics": "all", "step": 1}, "step", None),
        ({"semantics": "all", "exact": True}, "exact", None),
        ({"odd": 1}, "odd", None),
    ],
)
def test_simulate_says_what_is_wrong_with_which_part(
    reader: APIClient, change, path, document
) -> None:
    body = {
        "clusters": [{"name": "a"}],
        "placement": placement_document("web", pick_n_spec(1)),
    }

    answer = reader.post(SIMULATE, {**body, **change})

    assert answer.status_code == 422
    assert (path, document) in [
        (fault["path"], fault.get("document")) for fault in answer.json()["faults"]
    ]


@pytest.mark.parametrize(
    "change", [{"semantics": "odd"}, {"step": "x"}, {"now": "yesterday"}, {"why": "\0"}]
)
def test_simulate_refuses_invalid_options(
    reader: APIClient, change: dict[str, object]
) -> None:
    body = {
        "clusters": [{"name": "a"}],
        "placement": placement_document("web", pick_n_spec(1)),
    }

    assert reader.post(SIMULATE, {**body, **change}).status_code in (400, 422)


def test_a_simulation_may_search_exactly(reader: APIClient) -> None:
    body = {
        "clusters": [{"name": "a"}, {"name": "b"}],
        "placement": placement_document("web", pick_n_spec(3)),
    }

    assert "exact" not in reader.post(SIMULATE, body).json()
    found = reader.post(SIMULATE, {**body, "exact": True}).json()["exact"]
    assert (found["verdict"], found["wanted"]) == ("impossible", 3)


def test_a_preview_and_a_dry_run_have_the_findings_of_the_checks(
    api: APIClient,
) -> None:
    all_joined("a", "b")
    asserted = '[{"spread": {"region": {"atLeast": 2}}}]'
    document = placement_document("web", pick_n_spec(3), assertions=asserted)
    preview = api.post(PREVIEW, document).json()
    tried = api.post("/api/v1/apply?dryRun=All", document).json()
    for found in (preview["findings"], tried["findings"]):
        facts = [(one["rule"], one["severity"], one["placement"]) for one in found]
        assert facts[0] == ("N01", "error", "web")
    assert [
        (finding["rule"], finding["severity"]) for finding in preview["findings"][1:]
    ] == [("P01", "warning")]
    assert not Placement.objects.exists()


def test_findings_of_a_draft_count_the_clusters_that_stay_selected(
    api: APIClient,
) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(2))
    tainted = member_document(
        "a", taints=[{"key": "busy", "value": "yes", "effect": "NoSchedule"}]
    )
    upsert_clusters([ClusterSpec(tainted)], by=None, now=NOW)

    for number, expected in ((2, "N02"), (3, "N01")):
        document = placement_document("web", pick_n_spec(number))
        manifest = parse_placement(document)
        over_rest = {
            finding["rule"]: finding["message"]
            for finding in api.post(PREVIEW, document).json()["findings"]
        }
        typed = {
            finding.message
            for finding in quick_findings(manifest, preview_of(manifest).decision.cycle)
        }

        assert {"N01", "N02"} & over_rest.keys() == {expected}
        assert over_rest[expected] in typed
    assert "only 2 pass the filters or stay selected." in over_rest["N01"]
