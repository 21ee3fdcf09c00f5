"""Which cluster a member is: compared at every door, kept when it leaves, noticed when it changes."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.test import Client
from rest_framework.test import APIClient

from clusters.connection_input import ConnectionInput
from clusters.drivers.base import MemberIdentity
from clusters.drivers.kubernetes.access import MemberAccess
from clusters.drivers.kubernetes.check import OTHER_CLUSTER, ConnectionCheckFailed
from clusters.drivers.kubernetes.inventory import PlacementInventory, inventory_document
from clusters.kubernetes_drivers import hub_id, identity_of, member_id
from clusters.models import FormerMember, MemberCluster
from clusters.operations.connection import ConnectionNotAllowed, set_connection
from clusters.operations.edit import finish_leaving, leave
from clusters.operations.heartbeat import observe
from fleetui.models import Event
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.local_members import TOKEN, kubeconfig
from tests.clusters.kubernetes.member_fleet import MemberFleet
from tests.clusters.kubernetes.servers import LocalServer, serve
from tests.commands import call_command
from tests.rows import joined, person

NOW = datetime.now(UTC).replace(microsecond=0)
INVENTORIES = "/api/v1/namespaces/fleetui-system/configmaps"
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("local_drivers", "collected_static"),
]


@pytest.fixture
def fleet() -> MemberFleet:
    """One API server for all tokens, as when two kubeconfigs are for one cluster."""
    fleet = MemberFleet()
    fleet.servers["again"] = TOKEN
    return fleet


@pytest.fixture
def server(fleet: MemberFleet) -> Iterator[LocalServer]:
    with serve(fleet) as found:
        yield found


def join(
    server: LocalServer, name: str, *, token: str = TOKEN, **options: Any
) -> MemberCluster:
    fields = {"server": server.url, "ca": authority().pem, "token": token}
    wanted = ConnectionInput(fields=fields)
    return set_connection(
        name, wanted, by=None, now=NOW, **{"joins": True, **options}
    ).owner


def hold(fleet: MemberFleet, member: str) -> None:
    """Add an inventory of a member of this console to the cluster."""
    identity = MemberIdentity(hub_id(), member)
    access = MemberAccess(None, None, identity, lambda: 0.0)  # type: ignore[arg-type]
    document = inventory_document(access, PlacementInventory("web"))
    metadata = {**document["metadata"], "resourceVersion": "1", "uid": "u"}
    if not member:
        del metadata["annotations"]["fleetui.io/member"]
    fleet.objects[TOKEN][f"{INVENTORIES}/{metadata['name']}"] = {
        **document,
        "metadata": metadata,
    }


def gone(name: str) -> None:
    leave([name], by=None, now=NOW)
    assert finish_leaving(now=NOW) == [name]


def test_no_door_lets_a_cluster_in_twice(server: LocalServer, tmp_path: Path) -> None:
    join(server, "pier-1")
    joined("pier-3")
    message = "this API server is that of member cluster pier-1 already"
    user = person("ann", "operator", "cluster-administrator")
    rest, page = APIClient(), Client()
    rest.force_authenticate(user)
    page.force_login(user)
    fields = {"server": server.url, "ca": authority().pem, "token": "again"}

    for confirm in ("", "?confirm=failed-check", "?confirm=other-cluster"):
        refused = rest.put(
            f"/api/v1/clusters/pier-3/connection{confirm}", fields, format="json"
        )
        assert (refused.status_code, message in refused.json()["detail"]) == (409, True)
    for confirm in ("", "failed-check", "other-cluster"):
        entered = {
            "kind": "kubernetes",
            "name": "pier-2",
            "source": "fields",
            "do": "save",
            **fields,
        }
        answer = page.post("/clusters/new/", {**entered, "confirm": confirm})
        assert (answer.status_code, message in answer.content.decode()) == (422, True)
        answer = page.post(
            "/clusters/pier-3/connection/edit/", {**entered, "confirm": confirm}
        )
        assert (answer.status_code, message in answer.content.decode()) == (422, True)
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig(server, "again"), encoding="utf-8")
    for options in ((), ("--confirm",), ("--other-cluster",)):
        for name, more in (("pier-2", ()), ("pier-3", ("--replace",))):
            with pytest.raises(CommandError, match=message):
                call_command(
                    "join",
                    name,
                    "--kubeconfig",
                    str(file),
                    *options,
                    *more,
                    stdout=StringIO(),
                )

    assert not MemberCluster.objects.filter(name="pier-2").exists()
    assert MemberCluster.objects.get(name="pier-3").driver == ""
    checked = rest.post(
        "/api/v1/clusters/pier-3/connection/check", fields, format="json"
    ).json()
    failed = [step["message"] for step in checked["steps"] if not step["ok"]]
    assert [one[:30] for one in failed] == [message[:30]]
    assert not checked["passed"]


def test_a_cluster_that_left_keeps_its_name_while_it_holds_something(
    server: LocalServer, fleet: MemberFleet
) -> None:
    join(server, "pier-1")
    hold(fleet, member_id("pier-1"))
    gone("pier-1")
    assert FormerMember.objects.get().name == "pier-1"

    with pytest.raises(ConnectionNotAllowed, match="join it as pier-1"):
        join(server, "pier-2", other_cluster=True)

    row = join(server, "pier-1")
    assert row.cluster_uid == f"uid-of-{TOKEN}"
    assert not FormerMember.objects.exists()


def test_an_empty_cluster_that_left_joins_under_a_new_name_after_a_confirmation(
    server: LocalServer,
) -> None:
    join(server, "pier-1")
    gone("pier-1")

    with pytest.raises(
        ConnectionCheckFailed, match="the cluster was member pier-1 until"
    ) as caught:
        join(server, "pier-2", confirmed=True)
    assert caught.value.result.confirm == OTHER_CLUSTER

    assert join(server, "pier-2", other_cluster=True).name == "pier-2"


def test_records_without_a_member_need_a_confirmation(
    server: LocalServer, fleet: MemberFleet
) -> None:
    hold(fleet, "")

    with pytest.raises(ConnectionCheckFailed, match="they become those of pier-1"):
        join(server, "pier-1")


def test_another_cluster_behind_a_new_connection_is_confirmed_and_recorded(
    server: LocalServer, fleet: MemberFleet
) -> None:
    join(server, "pier-1")
    fleet.uids[TOKEN] = "another"

    with pytest.raises(ConnectionCheckFailed, match="another cluster than before"):
        join(server, "pier-1", joins=False, confirmed=True)

    row = join(server, "pier-1", joins=False, other_cluster=True)
    assert (row.cluster_uid, row.rebuilt_at) == ("another", NOW)
    event = Event.objects.get(verb="rebuilt")
    assert (event.before, event.after) == (
        {"clusterUid": f"uid-of-{TOKEN}"},
        {"clusterUid": "another"},
    )
    assert event.is_warning


def test_a_rebuilt_cluster_is_noticed_by_a_heartbeat_and_named(
    server: LocalServer, fleet: MemberFleet, client: Client
) -> None:
    join(server, "pier-1")
    observe(now=NOW)
    fleet.uids[TOKEN] = "rebuilt"
    MemberCluster.objects.update(
        health_message=""
    )  # the driver below is new: it reads at once
    from clusters import kubernetes_drivers  # noqa: PLC0415 -- as replaced by the fixture

    kubernetes_drivers.drivers.clear()
    observe(now=NOW + timedelta(minutes=6))

    row = MemberCluster.objects.get()
    assert (row.cluster_uid, row.rebuilt_at) == ("rebuilt", NOW + timedelta(minutes=6))
    assert Event.objects.filter(verb="rebuilt", name="pier-1").count() == 1
    client.force_login(person("vera", "viewer"))
    assert (
        "it is another cluster than before"
        in client.get("/clusters/pier-1/").content.decode()
    )


def test_members_that_turn_out_to_be_one_cluster_say_so_until_one_leaves(
    server: LocalServer, client: Client
) -> None:
    join(server, "pier-1")
    MemberCluster.objects.update(cluster_uid="")  # as before this release
    join(server, "pier-2", token="again")
    MemberCluster.objects.update(cluster_uid="")
    observe(now=NOW)

    shared = dict(MemberCluster.objects.values_list("name", "shares_server_with"))
    assert shared == {"pier-1": "pier-2", "pier-2": "pier-1"}
    assert (
        Event.objects.filter(verb="shares an API server", is_warning=True).count() == 2
    )
    client.force_login(person("vera", "viewer"))
    for name, other in shared.items():
        assert (
            f"This is the same cluster as {other}."
            in client.get(f"/clusters/{name}/").content.decode()
        )

    gone("pier-2")

    row = MemberCluster.objects.get()
    assert (row.name, row.shares_server_with, row.inherited_names) == (
        "pier-1",
        "",
        "pier-2",
    )
    assert identity_of(row).own_members == (
        "",
        member_id("pier-1"),
        member_id("pier-2"),
    )
