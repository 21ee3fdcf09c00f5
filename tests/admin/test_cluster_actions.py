"""Bulk actions: the preview shows the impact on placements; applying reports what was done."""

from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client

from clusters.models import FleetState, MemberCluster, Membership
from clusters.operations.edit import add_taint, cordon
from fleetui.models import Event
from tests.admin.pages import CLUSTERS, act_url, text_of
from tests.rows import NOW, all_joined, decided, joined, pick_n_spec, spec

pytestmark = pytest.mark.django_db
GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def chosen(client: Client, action: str, *names: str, **more: Any) -> Any:
    """Choose an action in the list."""
    keys = list(MemberCluster.objects.filter(name__in=names).values_list("pk", flat=True))
    return client.post(CLUSTERS, {"action": action, "_selected_action": keys, **more})


def done(client: Client, action: str, *names: str, **given: str) -> Any:
    """Confirm an action."""
    return client.post(act_url(action), {"names": " ".join(names), "apply": "1", **given})


def said(answer: Any) -> list[str]:
    """Return the messages of an answer."""
    return [str(message) for message in get_messages(answer.wsgi_request)]


def test_the_menu_has_the_actions_and_no_deletion(operator: Client) -> None:
    all_joined("a")

    choices = [name for name, _ in operator.get(CLUSTERS).context["action_form"].fields["action"].choices]

    assert choices == [
        "",
        "add-label",
        "remove-label",
        "add-taint",
        "remove-taint",
        "cordon",
        "uncordon",
        "drain",
        "leave",
        "faults",
    ]


def test_an_action_that_needs_more_requests_it(operator: Client) -> None:
    all_joined("a", "b")

    page = text_of(chosen(operator, "add-label", "a", "b"))

    assert 'name="names" value="a b"' in page
    assert 'name="key"' in page
    assert 'name="apply"' not in page


def test_leaving_shows_the_impact_on_placements(operator: Client) -> None:
    all_joined("a", "b", "c")
    decided("all", spec())
    decided("two", pick_n_spec(2))
    version = FleetState.objects.get().version

    answer = chosen(operator, "leave", "c", "b")

    rows = {row.placement: row for row in answer.context["impact"].rows}
    assert (rows["two"].joins, rows["two"].leaves) == (("a",), ("b", "c"))
    assert (rows["two"].placed_before, rows["two"].placed_after) == (2, 1)
    assert (rows["two"].was_fulfilled, rows["two"].is_fulfilled) == (True, False)
    assert (rows["all"].placed_before, rows["all"].placed_after) == (3, 1)
    assert FleetState.objects.get().version == version
    assert MemberCluster.objects.filter(membership=Membership.LEAVING).count() == 0


def test_a_label_is_previewed_before_it_is_set(operator: Client) -> None:
    joined("a", region="east")
    joined("b", region="west")
    term = {"labelSelector": {"matchLabels": {"region": "east"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": [term]}}
    decided("web", spec({"placementType": "PickAll", "affinity": {"clusterAffinity": required}}))

    answer = operator.post(
        act_url("add-label"), {"names": "a b", "key": "region", "value": "east", "preview": "1"}
    )

    (row,) = answer.context["impact"].rows
    assert (row.placement, row.joins, row.leaves) == ("web", ("b",), ())
    assert (answer.context["changing"], answer.context["same"]) == (1, 1)
    assert '<input type="hidden" name="value" value="east">' in text_of(answer)
    assert MemberCluster.objects.get(name="b").document["metadata"]["labels"] == {"region": "west"}


def test_what_changes_nothing_lists_no_placement(operator: Client) -> None:
    all_joined("a")
    decided("web", pick_n_spec(1))

    assert "No placement changes." in text_of(chosen(operator, "cordon", "a"))


@pytest.mark.parametrize(
    ("action", "given", "words"),
    [
        ("add-label", {"key": "env", "value": "prod"}, "Set label env=prod: 2 clusters changed."),
        ("remove-label", {"key": "region"}, "Remove label region: 1 cluster changed; 1 unchanged."),
        ("add-taint", {"key": "x", "value": ""}, "Add taint x=: 2 clusters changed."),
        (
            "remove-taint",
            {"taint": "gpu=yes"},
            "Remove taint gpu=yes: 1 cluster changed; 1 unchanged.",
        ),
        ("cordon", {}, "Cordon: 1 cluster changed; 1 unchanged."),
        ("uncordon", {}, "Uncordon: 1 cluster changed; 1 unchanged."),
        ("leave", {}, "Remove from fleet: 2 clusters leaving."),
    ],
)
def test_applying_says_what_changed_and_leaves_an_event_for_each(
    operator: Client, action: str, given: dict[str, str], words: str
) -> None:
    joined("a", region="east")
    all_joined("b")
    add_taint(["a"], GPU, by=None, now=NOW)
    cordon(["b"], by=None, now=NOW)
    before = {row.name: row.document for row in MemberCluster.objects.all()}
    events = Event.objects.count()

    answer = done(operator, action, "a", "b", **given)

    new = list(Event.objects.order_by("pk")[events:])
    now = {row.name: row.document for row in MemberCluster.objects.all()}
    assert (answer.status_code, said(answer)) == (302, [words])
    assert {event.actor_name for event in new} == {"a-operator"}
    assert [event.before for event in new] == [before[event.name] for event in new]
    if action != "leave":
        assert [event.after for event in new] == [now[event.name] for event in new]
        assert {event.name for event in new} == {name for name in now if now[name] != before[name]}


@pytest.mark.parametrize(
    ("action", "given", "words"),
    [
        ("add-label", {"key": "no spaces", "value": "x"}, "Invalid key: must "),
        ("add-label", {}, "metadata.labels"),
        ("add-taint", {"key": "", "value": "x"}, "spec.taints[0].key: Required value"),
        ("remove-label", {"key": "nobody-has-it"}, "Select a valid choice"),
        ("remove-taint", {"taint": "nobody=has"}, "Select a valid choice"),
    ],
)
def test_invalid_input_of_an_action_is_refused(
    operator: Client, action: str, given: dict[str, str], words: str
) -> None:
    all_joined("a")

    answer = done(operator, action, "a", **given)

    assert answer.status_code == 422
    assert words in text_of(answer)
    assert Event.objects.count() == 1


def test_all_or_none(operator: Client) -> None:
    all_joined("a", "b")
    for number in range(100):
        add_taint(["b"], {"key": f"t{number}", "effect": "NoSchedule"}, by=None, now=NOW)

    answer = done(operator, "add-taint", "a", "b", key="gpu", value="")

    assert answer.status_code == 422
    assert "spec.taints: Too many: 101: must have at most 100 items (allowed: 0 to 100 items)" in text_of(
        answer
    )
    assert not MemberCluster.objects.get(name="a").taints.exists()


def test_the_whole_list_can_be_chosen(operator: Client) -> None:
    all_joined(*(f"c-{number}" for number in range(60)))

    answer = chosen(operator, "cordon", "c-0", select_across="1")

    assert len(answer.context["names"]) == 60


def test_clusters_that_left_the_fleet_are_skipped(operator: Client) -> None:
    all_joined("a")

    assert said(done(operator, "cordon", "a", "gone")) == ["Cordon: 1 cluster changed."]
    assert "The selected clusters are no longer" in said(done(operator, "cordon", "gone"))[-1]


def test_one_may_go_back_and_type_again(operator: Client) -> None:
    all_joined("a")

    answer = operator.post(act_url("add-label"), {"names": "a", "key": "x", "value": "y", "back": "1"})

    assert 'name="key" value="x"' in text_of(answer)
    assert answer.context["impact"] is None


def test_an_unknown_action_is_not_found(operator: Client) -> None:
    assert operator.get(f"{CLUSTERS}act/explode/").status_code == 404
