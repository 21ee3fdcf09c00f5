"""Overrides on simulated clusters (lifecycle S33 to S36), and what saving one requests and refuses."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from clusters.operations.edit import change_labels
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.concurrency import RevisionConflict
from fleetui.models import Event
from placements.engine.rollout.state import Phase
from placements.models import (
    Binding,
    Override,
    OverrideSnapshot,
    Placement,
    ResourceSnapshot,
    Rollout,
)
from placements.services.overrides.operations import (
    UnknownOverrideError,
    delete_override,
    save_override,
)
from placements.services.overrides.queries import applying_to
from placements.services.rollouts.queries import (
    Part,
    parts_of,
    progress_words,
    waiting_words,
)
from tests.rows import NOW, spec
from tests.services.rollouts.overrides import (
    WEB,
    annotate,
    for_clusters,
    for_resource,
    leaving_out,
    rule,
)
from tests.services.rollouts.world import World, handed_to
from tests.web.reading import page_text

pytestmark = pytest.mark.django_db
KIND = "ClusterResourceOverride"
WRONG = {"op": "remove", "path": "/spec/nowhere"}


def placed(clusters: int = 3, **strategy: Any) -> World:
    """Return a world in which the shop is on every cluster; c000 is in the east."""
    world = World(clusters)
    change_labels(
        ["c000"], put={"region": "east"}, replaces=True, by=None, now=world.now
    )
    given = (
        {"strategy": {"type": "RollingUpdate", "rollingUpdate": strategy}}
        if strategy
        else {}
    )
    world.place("web", spec(**given))
    world.run(until=world.is_settled)
    return world


def save(world: World, document: dict[str, Any]) -> None:
    """Save an override and let the rollout come to its end."""
    save_override(document, by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled)


def annotations(cluster: str) -> dict[str, dict[str, str]]:
    """Return the annotations of what a cluster has, by kind."""
    return {
        kind: document["metadata"].get("annotations", {})
        for kind, document in handed_to(cluster).items()
    }


def runs_with(cluster: str) -> list[str]:
    """Return the override snapshots that belong to what a cluster runs."""
    keys = Binding.objects.get(cluster_name=cluster).override_snapshots
    return [str(OverrideSnapshot.objects.get(pk=key)) for key in keys]


def test_s33_an_override_of_a_namespace_changes_all_that_is_in_it() -> None:
    world = placed()

    save(world, for_clusters("tier", rule(annotate(tier="1"), region="east")))

    assert annotations("c000") == {
        "Namespace": {"tier": "1"},
        "Deployment": {"tier": "1"},
    }
    assert annotations("c001") == {"Namespace": {}, "Deployment": {}}
    assert (runs_with("c000"), runs_with("c001")) == (["tier-0"], [])
    save(world, for_clusters("tier", rule(annotate(tier="2"), region="east")))
    assert runs_with("c000") == ["tier-1"]
    assert annotations("c000")["Deployment"] == {"tier": "2"}


@pytest.mark.nightly
def test_only_the_clusters_to_which_it_applies_get_a_new_version() -> None:
    world = placed()
    before = dict(Binding.objects.values_list("cluster_name", "applied_version"))

    save(world, for_clusters("tier", rule(annotate(tier="1"), region="east")))

    after = dict(Binding.objects.values_list("cluster_name", "applied_version"))
    assert [name for name in after if after[name] != before[name]] == ["c000"]
    assert Rollout.objects.latest("number").updates.count() == 1


def test_s34_a_patch_that_does_not_fit_fails_its_cluster_and_leaves_the_others_alone() -> (
    None
):
    world = placed()

    save_override(
        for_clusters("tier", rule(WRONG, region="east")), by=None, now=world.now
    )
    world.work()
    world.pass_time(3)

    assert world.phases() == {
        "c000": Phase.FAILED,
        "c001": Phase.AVAILABLE,
        "c002": Phase.AVAILABLE,
    }
    run = Rollout.objects.get(state="running")
    assert parts_of(run) == {
        "c000": Part.FAILED,
        "c001": Part.UPDATED,
        "c002": Part.UPDATED,
    }
    assert progress_words(run) == "2 of 3 clusters updated, 1 failed"
    message = Binding.objects.get(cluster_name="c000").message
    assert (
        "override tier-0 at spec.policy.overrideRules[0].jsonPatchOverrides[0]"
        in message
    )
    save(world, for_clusters("tier", rule(annotate(tier="1"), region="east")))
    assert len(world.available()) == 3


def test_s34_the_others_wait_for_their_overrides_and_not_for_what_they_have() -> None:
    world = placed()

    rules = rule(WRONG, region="east"), rule(annotate(tier="1"))
    save_override(for_clusters("tier", *rules), by=None, now=world.now)
    world.work()
    world.pass_time(3)

    row = Binding.objects.get(cluster_name="c001")
    words = (
        "On revision 1, waiting for revision 1 with changed overrides or apply strategy."
        " Cannot take down any cluster"
    )
    assert words in waiting_words([row])[row.pk]


@pytest.mark.usefixtures("collected_static")
def test_pages_and_rest_name_what_waiting_clusters_want(client: Client) -> None:
    world = placed()
    rules = rule(WRONG, region="east"), rule(annotate(tier="1"))
    save_override(for_clusters("tier", *rules), by=None, now=world.now)
    world.work()
    world.pass_time(3)
    user = User.objects.create_superuser("admin")
    client.force_login(user)
    reader = APIClient()
    reader.force_authenticate(user)

    clusters = reader.get("/api/v1/rollouts/web/2").json()["clusters"]
    page = page_text(client.get("/rollouts/web/2/clusters/"))

    changed = "revision 1 with changed overrides or apply strategy"
    versions = {
        cluster["cluster"]: (cluster["running"], cluster["wanted"])
        for cluster in clusters
    }
    assert versions == {
        "c000": ("revision 1", "revision 1"),
        "c001": ("revision 1", changed),
        "c002": ("revision 1", changed),
    }
    assert page.count(f"1 → {changed.removeprefix('revision ')}") == 2


def test_s34_nothing_is_placed_where_no_override_fits() -> None:
    world = World(2)
    save_override(for_clusters("tier", rule(WRONG)), by=None, now=world.now)

    world.place("web", spec())
    world.pass_time(5)

    assert set(world.phases().values()) == {Phase.FAILED}


def test_s35_a_rule_that_deletes_leaves_the_resource_out_on_its_cluster() -> None:
    world = placed()

    save(world, for_resource("none", leaving_out(region="east")))

    assert set(handed_to("c000")) == {"Namespace"}
    assert set(handed_to("c001")) == {"Namespace", "Deployment"}


def test_s35_an_override_for_another_placement_is_ignored_fields() -> None:
    world = placed()

    save(world, for_clusters("tier", rule(annotate(tier="1")), placement="other"))

    assert runs_with("c000") == []
    assert Rollout.objects.count() == 1


def test_s36_the_override_in_the_namespace_wins() -> None:
    world = placed()

    save(world, for_resource("inner", rule(annotate(tier="inner"))))
    save(world, for_clusters("outer", rule(annotate(tier="outer"))))

    assert annotations("c001") == {
        "Namespace": {"tier": "outer"},
        "Deployment": {"tier": "inner"},
    }
    assert runs_with("c001") == ["outer-0", "shop/inner-0"]


def test_s36_variables_stand_for_the_cluster_and_its_labels() -> None:
    world = placed(2)
    value = "${MEMBER-CLUSTER-NAME}-${MEMBER-CLUSTER-LABEL-KEY-region}"

    save_override(
        for_clusters("who", rule(annotate(who=value))), by=None, now=world.now
    )
    world.work()
    world.pass_time(6)

    assert annotations("c000")["Namespace"] == {"who": "c000-east"}
    assert world.phases()["c001"] == Phase.FAILED
    assert "no label region" in Binding.objects.get(cluster_name="c001").message


def test_s36_an_override_for_namespaced_placements_does_not_concern_this_one() -> None:
    world = placed()

    save(
        world,
        for_resource("inner", rule(annotate(a="b")), name="web", scope="Namespaced"),
    )

    assert runs_with("c000") == []


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_cluster_that_gets_the_label_gets_the_override() -> None:
    world = placed()
    save(world, for_clusters("tier", rule(annotate(tier="1"), region="east")))

    change_labels(
        ["c001"], put={"region": "east"}, replaces=True, by=None, now=world.now
    )
    world.work()
    world.run(until=world.is_settled)

    assert runs_with("c001") == ["tier-0"]


@pytest.mark.nightly
def test_deleting_an_override_takes_its_changes_back() -> None:
    world = placed()
    first = Binding.objects.get(cluster_name="c000").applied_version
    save(world, for_clusters("tier", rule(annotate(tier="1"))))

    delete_override(KIND, "", "tier", by=None, now=world.now)
    assert OverrideSnapshot.objects.count() == 1
    world.work()
    world.run(until=world.is_settled)

    assert set(Binding.objects.values_list("applied_version", flat=True)) == {first}
    assert annotations("c000")["Namespace"] == {}
    with pytest.raises(
        UnknownOverrideError, match="no ClusterResourceOverride is named tier"
    ):
        delete_override(KIND, "", "tier", by=None, now=world.now)


@pytest.mark.servers_only
@pytest.mark.servers
def test_ten_snapshots_are_kept_and_those_in_use() -> None:
    world = placed(1)
    save(world, for_clusters("tier", rule(annotate(tier="0"))))

    for number in range(1, 15):
        save_override(
            for_clusters("tier", rule(annotate(tier=str(number)))),
            by=None,
            now=world.now,
        )

    numbers = OverrideSnapshot.objects.order_by("number").values_list(
        "number", flat=True
    )
    assert list(numbers) == [0, *range(5, 15)]


def test_a_label_alone_makes_no_snapshot_and_the_same_again_changes_nothing() -> None:
    document = for_clusters("tier", rule(annotate(tier="1")))
    save_override(document, by=None, now=NOW)
    again = save_override(document, by=None, now=NOW)
    document["metadata"]["labels"] = {"team": "a"}

    saved = save_override(document, by=None, now=NOW)

    assert (again.result, saved.result, saved.object.revision) == (
        "unchanged",
        "changed",
        2,
    )
    assert OverrideSnapshot.objects.get().number == 0
    events = Event.objects.order_by("pk").values_list("verb", "kind", "name")
    assert list(events) == [
        ("created", "cluster-override", "tier"),
        ("changed", "cluster-override", "tier"),
    ]


@pytest.mark.parametrize(
    ("second", "path", "code"),
    [
        (
            for_clusters("b", rule(annotate(a="b"))),
            "spec.clusterResourceSelectors[0]",
            "conflict",
        ),
        (
            for_clusters("a", rule(annotate(a="b")), placement="web"),
            "spec.placement",
            "immutable",
        ),
    ],
)
def test_what_an_override_may_not_be(
    second: dict[str, Any], path: str, code: str
) -> None:
    save_override(for_clusters("a", rule(annotate(a="b"))), by=None, now=NOW)

    with pytest.raises(InvalidManifest) as caught:
        save_override(second, by=None, now=NOW)

    assert [(error.path, error.code) for error in caught.value.errors] == [(path, code)]
    assert Override.objects.count() == 1


@pytest.mark.nightly
def test_the_hundred_and_first_in_a_namespace_is_refused() -> None:
    for number in range(100):
        document = for_resource(
            f"o{number}", rule(annotate(a="b")), of={**WEB, "name": f"w{number}"}
        )
        save_override(document, by=None, now=NOW)

    with pytest.raises(
        InvalidManifest, match="there are 100 of this kind in the namespace shop"
    ):
        save_override(for_resource("last", rule(annotate(a="b"))), by=None, now=NOW)


def test_an_edit_that_started_from_an_older_revision_is_refused() -> None:
    save_override(for_clusters("tier", rule(annotate(tier="1"))), by=None, now=NOW)

    with pytest.raises(RevisionConflict, match="tier is at revision 1"):
        save_override(
            for_clusters("tier", rule(annotate(tier="2"))), by=None, now=NOW, expected=0
        )


@pytest.mark.nightly
def test_saving_wakes_the_placements_that_have_the_resource_and_no_others() -> None:
    world = placed()
    generation = Placement.objects.get().rollout_generation
    elsewhere = {**WEB, "name": "other"}

    save_override(
        for_resource("a", rule(annotate(a="b")), of=elsewhere), by=None, now=world.now
    )
    assert Placement.objects.get().rollout_generation == generation
    save_override(for_resource("b", rule(annotate(a="b"))), by=None, now=world.now)

    assert Placement.objects.get().rollout_generation == generation + 1


@pytest.mark.nightly
def test_without_overrides_a_look_costs_one_query_more_and_reads_no_cluster(
    django_assert_num_queries: Any,
) -> None:
    placed(1)
    target = ResourceSnapshot.objects.get(is_latest=True)

    with django_assert_num_queries(1):
        assert applying_to("web", target) == {}


@pytest.mark.nightly
def test_a_set_of_overrides_has_one_version_on_all_its_clusters() -> None:
    world = placed(3)

    save(world, for_clusters("tier", rule(annotate(tier="1"))))

    assert Binding.objects.values("applied_version").distinct().count() == 1
    assert {runs_with(name)[0] for name in ("c000", "c001", "c002")} == {"tier-0"}
