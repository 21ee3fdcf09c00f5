"""The form of a cluster: what it saves, what it refuses and where it says so."""

import pytest
from django.test import Client

from clusters.models import ClusterLabel, ClusterTaint, MemberCluster
from clusters.operations.editing import change_labels, set_taints
from clusters.operations.joining import Wanted, put_clusters
from fleetui.models import Event
from tests.admin.pages import ADD, change_url, fields_of, submit, text_of
from tests.rows import NOW, all_joined, joined, member_document, person

pytestmark = pytest.mark.django_db


def labels_of(name: str) -> dict[str, str]:
    """Give the labels of a cluster, as the index has them."""
    return dict(ClusterLabel.objects.filter(cluster__name=name).values_list("key", "value"))


def test_an_edit_goes_through_the_operation_and_leaves_an_event(operator: Client) -> None:
    joined("a", region="east", env="prod")
    before = MemberCluster.objects.get().document

    answer = submit(
        operator,
        change_url("a"),
        **{"labels-1-value": "west", "labels-0-DELETE": "on", "taints-0-key": "gpu", "taints-0-value": "yes"},
    )

    cluster, event = MemberCluster.objects.get(), Event.objects.latest("pk")
    assert answer.status_code == 302
    assert labels_of("a") == {"region": "west"}
    assert [str(taint) for taint in cluster.taints.all()] == ["gpu=yes:NoSchedule"]
    assert cluster.revision == 2
    assert (event.actor_name, event.verb, event.kind, event.name) == ("a-operator", "changed", "cluster", "a")
    assert (event.before, event.after) == (before, cluster.document)


def test_saving_what_is_there_changes_nothing(operator: Client) -> None:
    document = member_document("a", {"region": "east"}, heartbeatPeriodSeconds=15)
    document["metadata"]["annotations"] = {"example.com/owner": "me"}
    document["spec"]["taints"] = [{"key": "gpu", "value": "", "effect": "NoSchedule"}]
    put_clusters([Wanted(document)], by=None, now=NOW)

    answer = submit(operator, change_url("a"))

    assert answer.status_code == 302
    assert MemberCluster.objects.get().document == document
    assert Event.objects.count() == 1


def test_the_first_labels_and_taints_can_be_added(operator: Client) -> None:
    all_joined("a")

    submit(operator, change_url("a"), **{"labels-0-key": "region", "labels-0-value": "east"})

    assert labels_of("a") == {"region": "east"}


@pytest.mark.parametrize(
    ("typed", "row", "field", "words"),
    [
        ({"labels-0-key": "no spaces"}, "labels", "key", 'metadata.labels["no spaces"]: the key '),
        ({"labels-0-value": "no spaces"}, "labels", "value", 'metadata.labels.env: "no spaces" '),
        ({"labels-1-key": "env"}, "labels", "key", "metadata.labels.env: stands twice in the same object"),
        ({"taints-0-key": "-"}, "taints", "key", 'spec.taints[0].key: "-" '),
        ({"taints-0-value": "?"}, "taints", "key", "spec.taints[0].key: is empty (allowed: some text)"),
        ({"taints-0-key": "a", "taints-0-value": "?"}, "taints", "value", 'spec.taints[0].value: "?" '),
    ],
)
def test_a_fault_stands_at_its_row(
    operator: Client, typed: dict[str, str], row: str, field: str, words: str
) -> None:
    joined("a", env="prod", region="east")

    answer = submit(operator, change_url("a"), **typed)

    shown = {one.formset.prefix: one.formset for one in answer.context["inline_admin_formsets"]}
    errors = [form.errors[field] for form in shown[row].forms if field in form.errors]
    assert answer.status_code == 200
    assert str(errors[0][0]).startswith(words)
    assert Event.objects.count() == 1


def test_the_second_of_two_equal_taints_is_at_fault(operator: Client) -> None:
    joined("a")
    set_taints(
        "a", [{"key": "x", "effect": "NoSchedule"}, {"key": "y", "effect": "NoSchedule"}], by=None, now=NOW
    )

    answer = submit(operator, change_url("a"), **{"taints-1-key": "x"})

    taints = answer.context["inline_admin_formsets"][1].formset
    assert taints.forms[0].errors == {}
    assert "spec.taints[1]: repeats an entry above (allowed: each taint once)" in str(taints.forms[1].errors)


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"identity_name": ""}, "identity_name", "spec.identity.name: is empty (allowed: some text)"),
        ({"heartbeat_period": "601"}, "heartbeat_period", "spec.heartbeatPeriodSeconds: 601 is out of range"),
        ({"heartbeat_period": "x"}, "heartbeat_period", "Enter a whole number."),
    ],
)
def test_a_fault_stands_at_its_field(operator: Client, typed: dict[str, str], field: str, words: str) -> None:
    joined("a")

    answer = submit(operator, change_url("a"), **typed)

    assert answer.context["adminform"].form.errors[field][0].startswith(words)


def test_a_stale_edit_is_refused_with_who_saved_in_between(operator: Client) -> None:
    joined("a", region="east")
    url = change_url("a")
    opened = fields_of(operator.get(url))
    change_labels(["a"], put={"region": "north"}, by=person("ada", "operator"), now=NOW)

    answer = operator.post(url, {**opened, "labels-0-value": "west"})

    assert "a is at revision 2, this edit started from 1: ada: changed" in text_of(answer)
    assert labels_of("a") == {"region": "north"}


def test_an_edit_that_does_not_say_where_it_started_is_refused(operator: Client) -> None:
    joined("a", region="east")

    answer = submit(operator, change_url("a"), started_from="", **{"labels-0-value": "west"})

    assert answer.status_code == 200
    assert labels_of("a") == {"region": "east"}


def test_the_name_stays(operator: Client) -> None:
    joined("a", region="east")

    submit(operator, change_url("a"), name="b", driver="simulated", **{"labels-0-value": "west"})

    cluster = MemberCluster.objects.get()
    assert (cluster.name, cluster.driver) == ("a", "")
    assert labels_of("a") == {"region": "west"}


def test_a_cluster_joins(operator: Client) -> None:
    answer = submit(
        operator,
        ADD,
        name="a",
        driver="simulated",
        identity_name="a-agent",
        **{"labels-0-key": "region", "labels-0-value": "east", "taints-0-key": "gpu"},
    )

    cluster, event = MemberCluster.objects.get(), Event.objects.get()
    assert answer.status_code == 302
    assert cluster.document == {
        "apiVersion": "cluster.kubernetes-fleet.io/v1",
        "kind": "MemberCluster",
        "metadata": {"name": "a", "labels": {"region": "east"}},
        "spec": {
            "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            "identity": {"kind": "User", "name": "a-agent"},
        },
    }
    assert (cluster.driver, cluster.membership, cluster.is_demo) == ("simulated", "joining", False)
    assert (event.actor_name, event.verb, event.before) == ("a-operator", "joined", None)
    assert ClusterTaint.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "metadata.name: is empty (allowed: some text)"),
        ("Odd_Name", 'metadata.name: "Odd_Name" '),
        ("taken", "cluster taken is at revision 1, this edit started from 0"),
        ("<script>alert(1)</script>", 'metadata.name: "<script>alert(1)</script>" '),
    ],
)
def test_a_name_that_will_not_do_is_refused(operator: Client, name: str, words: str) -> None:
    all_joined("taken")

    answer = submit(operator, ADD, name=name, identity_name="agent")

    assert answer.context["adminform"].form.errors["name"][0].startswith(words)
    assert "<script>alert" not in text_of(answer)
    assert MemberCluster.objects.count() == 1


def test_what_is_reported_is_shown_and_no_delete_is_offered(operator: Client) -> None:
    cluster = joined("a", region="east")
    properties, usage = {"example.com/<b>": "3"}, {"capacity": {"cpu": "8"}}
    MemberCluster.objects.filter(pk=cluster.pk).update(properties=properties, usage=usage)

    page = text_of(operator.get(change_url("a")))

    assert "example.com/&lt;b&gt;" in page
    assert "apiVersion: cluster.kubernetes-fleet.io/v1" in page
    assert "deletelink" not in page
    assert "/act/leave/?name=a" in page


def test_a_viewer_reads_the_form(viewer: Client) -> None:
    joined("a", region="east")

    answer = viewer.get(change_url("a"))

    assert answer.status_code == 200
    assert "a-agent" in text_of(answer)
    assert "east" in text_of(answer).split("labels-group")[1].split("taints-group")[0]
    assert 'name="_save"' not in text_of(answer)
    assert "/act/leave/" not in text_of(answer)


def test_history_is_that_of_the_events(viewer: Client) -> None:
    joined("a")

    answer = viewer.get(change_url("a").replace("change", "history"), follow=True)

    assert answer.redirect_chain == [("/admin/fleetui/event/?kind=cluster&name=a", 302)]
    assert answer.context["cl"].result_count == 1
