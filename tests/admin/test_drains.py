"""The actions Drain and Inject faults: their previews and their effects."""

import pytest
from django.test import Client

from clusters.models import MemberCluster
from clusters.operations.fault_injection import faults_of
from placements.models import Drain
from tests.admin.pages import act_url, change_url, text_of
from tests.admin.test_cluster_actions import done, said
from tests.rows import all_joined, pick_n_spec, simulated, spec
from tests.services.rollouts.world import World

pytestmark = pytest.mark.django_db
FIXED = {"placementType": "PickFixed", "clusterNames": ["c001"]}


def test_drain_shows_replacements_before_it_starts(operator: Client) -> None:
    world = World(3)
    world.place("fixed", spec(FIXED))
    world.place("web", pick_n_spec(3))
    world.run(until=world.is_settled)

    page = text_of(operator.get(act_url("drain"), {"name": "c001"}))

    assert "PickFixed: cannot be evicted, stays" in page
    assert "No replacement: no other cluster passes its filters" in page
    assert not Drain.objects.exists()
    assert said(done(operator, "drain", "c001")) == ["Drain: 1 cluster draining."]
    assert Drain.objects.get().started_by == "a-operator"
    assert said(done(operator, "drain", "c001"))[-1].endswith("1 unchanged.")


def test_clusters_that_are_drained_together_take_nothing_over(operator: Client) -> None:
    world = World(3)
    world.place("web", pick_n_spec(1))
    world.run(until=world.is_settled)
    [here] = world.available()
    others = sorted({"c000", "c001", "c002"} - {here})

    pages = [
        text_of(operator.get(act_url("drain"), {"name": [here, *names]})) for names in (others[:1], others)
    ]

    assert f"<td>{others[1]}</td>" in pages[0]
    assert "No replacement" in pages[1]


def test_faults_of_a_simulated_cluster_are_edited(operator: Client) -> None:
    simulated("s", fault="silent")
    assert "silent" in text_of(operator.get(act_url("faults"), {"name": "s"}))
    assert "/clusters/s/inject-fault/" in text_of(operator.get(change_url("s")))

    preview = operator.post(act_url("faults"), {"names": "s", "faults": '[{"kind": "unhealthy"}]'})
    messages = said(done(operator, "faults", "s", faults='[{"kind": "unhealthy"}]'))

    assert "unhealthy" in text_of(preview)
    assert messages == ["Inject faults: 1 cluster changed."]
    assert faults_of(MemberCluster.objects.get(name="s")) == [{"kind": "unhealthy"}]
    done(operator, "faults", "s", faults="")
    assert faults_of(MemberCluster.objects.get(name="s")) == []


@pytest.mark.parametrize(
    ("name", "faults", "words"),
    [
        ("s", "[", "faults"),
        ("s", "{}", "is not a list of faults"),
        ("s", '[{"kind": "odd"}]', "Unsupported value"),
        ("real", "[]", "is not a simulated cluster"),
    ],
)
def test_invalid_faults_are_refused(operator: Client, name: str, faults: str, words: str) -> None:
    simulated("s")
    all_joined("real")

    answer = done(operator, "faults", name, faults=faults)

    assert answer.status_code == 422
    assert words in text_of(answer)


def test_a_viewer_drains_nothing(viewer: Client) -> None:
    all_joined("a")

    assert done(viewer, "drain", "a").status_code == 403
    assert not Drain.objects.exists()
