"""The form of a cluster: what it saves, what it refuses and where it says so."""

import re

import pytest
from django.test import Client

from clusters.connection_input import (
    CLUSTER_KINDS,
    CLUSTER_NAME_HINT,
    REPORTED_BY_AGENT,
)
from clusters.drivers.base import KUBERNETES, SIMULATED
from clusters.fleet import is_cordon
from clusters.models import MemberCluster
from clusters.operations.edit import change_labels, change_taints, cordon
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.models import Event
from tests.admin.pages import ADD, change_url, fields_of, submit, text_of
from tests.rows import NOW, all_joined, joined, member_document, person

pytestmark = pytest.mark.django_db


def test_no_two_fields_have_the_same_label(operator: Client) -> None:
    labels = re.findall(r"<(?:label|legend)[^>]*>([^<]+):<", text_of(operator.get(ADD)))

    assert "Agent name" in labels
    assert sorted(labels) == sorted(set(labels))


def test_an_edit_goes_through_the_operation_and_leaves_an_event(
    operator: Client,
) -> None:
    joined("a", region="east", env="prod")
    before = MemberCluster.objects.get().document

    answer = submit(
        operator, change_url("a"), identity_name="other", heartbeat_period="15"
    )

    cluster, event = MemberCluster.objects.get(), Event.objects.latest("pk")
    assert answer.status_code == 302
    assert cluster.document["spec"]["identity"] == {"kind": "User", "name": "other"}
    assert cluster.document["spec"]["heartbeatPeriodSeconds"] == 15
    assert cluster.document["metadata"]["labels"] == {"region": "east", "env": "prod"}
    assert cluster.revision == 2
    assert (event.actor_name, event.verb, event.kind, event.name) == (
        "a-operator",
        "changed",
        "cluster",
        "a",
    )
    assert (event.before, event.after) == (before, cluster.document)


def test_saving_what_is_there_changes_nothing(operator: Client) -> None:
    document = member_document("a", {"region": "east"}, heartbeatPeriodSeconds=15)
    document["metadata"]["annotations"] = {"example.com/owner": "me"}
    document["spec"]["taints"] = [{"key": "gpu", "value": "", "effect": "NoSchedule"}]
    upsert_clusters([ClusterSpec(document)], by=None, now=NOW)

    answer = submit(operator, change_url("a"))

    assert answer.status_code == 302
    assert MemberCluster.objects.get().document == document
    assert Event.objects.count() == 1


def test_a_new_cluster_is_simulated_unless_another_kind_is_chosen(
    operator: Client,
) -> None:
    """The kinds, their order and the rule of names are those of the console."""
    page = text_of(operator.get(ADD))
    submit(operator, ADD, name="a.b", kind=CLUSTER_KINDS[0][0])
    submit(operator, ADD, name="b", kind=REPORTED_BY_AGENT)
    connecting = submit(
        operator, ADD, name="c", kind=KUBERNETES, label_key="env", label_value="prod"
    )

    assert [value for value, _, _ in CLUSTER_KINDS] == re.findall(
        r'name="kind" value="(\w+)"', page
    )
    assert re.findall(r'value="(\w+)"[^>]*checked', page) == [SIMULATED]
    assert CLUSTER_NAME_HINT in page
    assert dict(MemberCluster.objects.values_list("name", "driver")) == {
        "a.b": SIMULATED,
        "b": "",
    }
    asked = "/clusters/new/?name=c&kind=kubernetes&label_key=env&label_value=prod&"
    assert connecting["Location"].startswith(asked)


def test_the_heartbeat_period_can_be_removed(operator: Client) -> None:
    upsert_clusters(
        [ClusterSpec(member_document("a", heartbeatPeriodSeconds=15))], by=None, now=NOW
    )

    submit(operator, change_url("a"), heartbeat_period="")

    assert "heartbeatPeriodSeconds" not in MemberCluster.objects.get().document["spec"]


def test_labels_and_taints_are_edited_beside_the_rest(operator: Client) -> None:
    joined("a", region="east")
    taint = {"key": "gpu", "effect": "NoSchedule"}
    change_taints(["a"], add=[taint], replaces=True, by=None, now=NOW)

    page = operator.get(change_url("a"))
    rows = fields_of(page) | {
        "label_key": ["region", "env"],
        "label_value": ["west", "prod"],
        "taint_key": ["", "disk"],
        "taint_value": ["", "slow"],
        "taint_effect": ["NoSchedule", "NoSchedule"],
    }
    answer = operator.post(change_url("a"), rows)

    document = MemberCluster.objects.get().document
    assert 'value="region"' in text_of(page)
    assert 'value="gpu"' in text_of(page)
    assert answer.status_code == 302
    assert document["metadata"]["labels"] == {"region": "west", "env": "prod"}
    assert document["spec"]["taints"] == [
        {"key": "disk", "value": "slow", "effect": "NoSchedule"}
    ]


def test_a_cordon_is_no_taint_of_the_form_and_stays(operator: Client) -> None:
    joined("a")
    cordon(["a"], by=None, now=NOW)
    page = operator.get(change_url("a"))

    rows = fields_of(page) | {
        "taint_key": "disk",
        "taint_value": "slow",
        "taint_effect": "NoSchedule",
    }
    operator.post(change_url("a"), rows)

    slow, cordoned = MemberCluster.objects.get().document["spec"]["taints"]
    assert 'value="cordon-key"' not in text_of(page)
    assert "Cordoned until a is uncordoned, whatever its taints are." in text_of(page)
    assert slow["key"] == "disk"
    assert is_cordon(cordoned)


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        (
            {"label_key": "bad key", "label_value": "x"},
            "labels",
            'metadata.labels["bad key"]: Invalid key',
        ),
        (
            {"label_key": ["a", "a"], "label_value": ["1", "2"]},
            "labels",
            "metadata.labels (line 2): Duplicate key 'a'",
        ),
        (
            {"taint_key": "gpu", "taint_value": "", "taint_effect": "Odd"},
            "taints",
            "spec.taints[0].effect: ",
        ),
    ],
)
def test_an_error_of_a_label_or_a_taint_is_shown_at_its_rows(
    operator: Client, typed: dict[str, str], field: str, words: str
) -> None:
    joined("a")

    answer = submit(operator, change_url("a"), **typed)

    assert answer.context["adminform"].form.errors[field][0].startswith(words)
    assert not MemberCluster.objects.get().document["metadata"].get("labels")


def test_a_cluster_is_added_with_its_name_alone(operator: Client) -> None:
    answer = submit(operator, ADD, name="a")

    assert answer.status_code == 302
    assert MemberCluster.objects.get().document["spec"]["identity"] == {
        "kind": "ServiceAccount",
        "name": "fleetui",
        "namespace": "fleetui-system",
    }


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        (
            {"identity_name": ""},
            "identity_name",
            "spec.identity.name: Required value (allowed: non-empty text)",
        ),
        (
            {"heartbeat_period": "601"},
            "heartbeat_period",
            "spec.heartbeatPeriodSeconds: Invalid value: 601: must be",
        ),
        ({"heartbeat_period": "x"}, "heartbeat_period", "Enter a whole number."),
    ],
)
def test_an_error_is_shown_at_its_field(
    operator: Client, typed: dict[str, str], field: str, words: str
) -> None:
    joined("a")

    answer = submit(operator, change_url("a"), **typed)

    assert answer.context["adminform"].form.errors[field][0].startswith(words)


def test_a_stale_edit_is_refused_with_who_saved_in_between(operator: Client) -> None:
    joined("a", region="east")
    url = change_url("a")
    opened = fields_of(operator.get(url))
    change_labels(["a"], put={"region": "north"}, by=person("ada", "operator"), now=NOW)

    answer = operator.post(url, {**opened, "heartbeat_period": "15"})

    assert "a is at revision 2, this edit started from 1: ada: changed" in text_of(
        answer
    )
    assert "heartbeatPeriodSeconds" not in MemberCluster.objects.get().document["spec"]


def test_an_edit_that_does_not_say_where_it_started_is_refused(
    operator: Client,
) -> None:
    joined("a", region="east")

    answer = submit(operator, change_url("a"), started_from="", heartbeat_period="15")

    assert answer.status_code == 200
    assert MemberCluster.objects.get().revision == 1


def test_the_name_stays(operator: Client) -> None:
    joined("a", region="east")

    submit(operator, change_url("a"), name="b", kind="simulated", heartbeat_period="15")

    cluster = MemberCluster.objects.get()
    assert (cluster.name, cluster.driver, cluster.revision) == ("a", "", 2)


def test_a_cluster_joins(operator: Client) -> None:
    answer = submit(
        operator,
        ADD,
        name="a",
        kind="simulated",
        identity_kind="User",
        identity_name="a-agent",
        identity_namespace="",
        label_key="region",
        label_value="east",
    )

    cluster, event = MemberCluster.objects.get(), Event.objects.get()
    assert answer.status_code == 302
    assert cluster.document == {
        "apiVersion": "cluster.kubernetes-fleet.io/v1",
        "kind": "MemberCluster",
        "metadata": {"name": "a", "labels": {"region": "east"}},
        "spec": {"identity": {"kind": "User", "name": "a-agent"}},
    }
    assert (cluster.driver, cluster.membership, cluster.is_demo) == (
        "simulated",
        "joining",
        False,
    )
    assert (event.actor_name, event.verb, event.before) == (
        "a-operator",
        "joined",
        None,
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "metadata.name: Required value (allowed: non-empty text)"),
        ("Odd_Name", 'metadata.name: Invalid value: "Odd_Name": must be a DNS name'),
        ("taken", "cluster taken is at revision 1, this edit started from 0"),
        (
            "<script>alert(1)</script>",
            'metadata.name: Invalid value: "<script>alert(1)</script>": must be a DNS name',
        ),
    ],
)
def test_an_invalid_name_is_refused(operator: Client, name: str, words: str) -> None:
    all_joined("taken")

    answer = submit(operator, ADD, name=name, identity_name="agent")

    assert answer.context["adminform"].form.errors["name"][0].startswith(words)
    assert "<script>alert" not in text_of(answer)
    assert MemberCluster.objects.count() == 1


def test_what_is_reported_is_shown_and_no_delete_is_offered(operator: Client) -> None:
    cluster = joined("a", region="east")
    properties, usage = {"example.com/<b>": "3"}, {"capacity": {"cpu": "8"}}
    MemberCluster.objects.filter(pk=cluster.pk).update(
        properties=properties, usage=usage
    )

    page = text_of(operator.get(change_url("a")))

    assert "example.com/&lt;b&gt;" in page
    assert "apiVersion: cluster.kubernetes-fleet.io/v1" in page
    assert "deletelink" not in page
    assert "/clusters/a/leave/" in page


def test_a_viewer_reads_the_form(viewer: Client) -> None:
    joined("a", region="east")

    answer = viewer.get(change_url("a"))

    assert answer.status_code == 200
    assert "a-agent" in text_of(answer)
    assert "region=east" in text_of(answer)
    assert 'name="_save"' not in text_of(answer)
    assert "/clusters/a/leave/" not in text_of(answer)


def test_history_is_that_of_the_events(viewer: Client) -> None:
    joined("a")

    answer = viewer.get(change_url("a").replace("change", "history"), follow=True)

    assert answer.redirect_chain == [("/activity/?kind=cluster&name=a", 302)]
    assert "joined" in text_of(answer)


def test_a_reserved_name_is_refused_at_its_field(operator: Client) -> None:
    answer = submit(operator, ADD, name="import", identity_name="import-agent")

    assert answer.status_code == 200
    assert "import is a reserved name (reserved: bulk, import, new)" in text_of(answer)
    assert not MemberCluster.objects.exists()
