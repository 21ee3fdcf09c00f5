"""Dry runs on the clusters: what they answer to an edit, which are called, and that nothing is written."""

from collections.abc import Iterator
from contextlib import ExitStack
from time import monotonic
from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings

from clusters import kubernetes_drivers
from clusters.drivers.base import Driver
from clusters.drivers.concurrency import NotCalled
from clusters.kubernetes_drivers import DriverCache
from clusters.models import MemberCluster
from clusters.operations.connection import ConnectionInput, set_connection
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import Document, dump_yaml
from fleetui.models import Event
from placements.explain.dry_runs import DryRunOutcome, DryRunResult
from placements.models import Binding, Placement, Resource, ResourceSnapshot
from placements.services import dry_runs
from placements.services.dry_runs import DryRunsBusyError, dry_run_on_clusters
from placements.services.resources.operations import apply_resources
from tests.clusters.kubernetes.api_server import ApiServer
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer, freeze, serve
from tests.database import database_dump
from tests.rows import (
    NOW,
    api_token,
    config_map,
    decided,
    namespace,
    person,
    placement_document,
    simulated,
    spec,
)
from tests.web.planted import found_in, secret

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
NAMESPACE, CONFIG = (
    "/api/v1/namespaces/shop",
    "/api/v1/namespaces/shop/configmaps/settings",
)


class Fleet:
    """Two clusters with API servers, and a simulated one."""

    def __init__(self, stack: ExitStack) -> None:
        self.servers = {name: ApiServer() for name in ("one", "two")}
        self.links: dict[str, LocalServer] = {}
        for name, server in self.servers.items():
            server.objects[NAMESPACE] = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "shop"},
            }
            self.links[name] = stack.enter_context(serve(server))
            fields = {
                "server": self.links[name].url,
                "ca": authority().pem,
                "token": "marker-token",
            }
            set_connection(
                name, ConnectionInput(fields=fields), by=None, now=NOW, joins=True
            )
        simulated("three")
        MemberCluster.objects.update(verdict="", verdict_reason="", membership="joined")
        apply_resources(
            [namespace("shop"), config_map("settings", data={"color": "red"})],
            by=None,
            now=NOW,
        )


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(kubernetes_drivers, "drivers", DriverCache())
    with override_settings(MEMBER_LOOPBACK=True), ExitStack() as stack:
        yield Fleet(stack)
    kubernetes_drivers.drivers.clear()


def run(*documents: dict[str, Any], **options: Any) -> DryRunResult:
    edit = [Document(document, number) for number, document in enumerate(documents, 1)]
    how: dict[str, Any] = {"by": None, "now": NOW, "threads": 0, "clock": lambda: NOW}
    return dry_run_on_clusters(documents=edit, **how | options)


def sentences(result: DryRunResult) -> list[str]:
    return [sentence.text for sentence in result.sentences()]


def test_a_refusal_of_one_cluster_has_the_message_of_its_server(fleet: Fleet) -> None:
    fleet.servers["two"].refusals["settings"] = (
        422,
        'ConfigMap "settings" is invalid: too large',
    )

    result = run(placement_document("web", spec()))

    assert sentences(result) == [
        "Would be refused on 1 cluster: two.",
        "Would change 1 object on 1 cluster.",
        "1 cluster simulated: not checked.",
    ]
    refused, changed = result.answers
    assert (refused.cluster, refused.outcome) == ("two", DryRunOutcome.REFUSED)
    assert [
        (refusal.kind, refusal.name, refusal.message) for refusal in refused.refusals
    ] == [("ConfigMap", "settings", 'ConfigMap "settings" is invalid: too large')]
    assert changed.words == "1 created"


@pytest.mark.servers_only
def test_nothing_is_written_on_the_clusters_or_on_the_hub(fleet: Fleet) -> None:
    models = (Placement, Binding, Resource, ResourceSnapshot, Event)
    before = [list(model.objects.order_by("pk").values()) for model in models]

    run(placement_document("web", spec()), config_map("more"))

    assert [list(model.objects.order_by("pk").values()) for model in models] == before
    assert [server.written for server in fleet.servers.values()] == [[], []]


@pytest.mark.servers_only
def test_an_edit_of_a_resource_is_tried_where_placements_have_it(fleet: Fleet) -> None:
    decided("web", spec())
    live = config_map("settings", data={"color": "red"})
    fleet.servers["one"].objects[CONFIG] = live

    result = run(config_map("settings", data={"color": "blue"}))

    by_cluster = {answer.cluster: answer for answer in result.answers}
    assert by_cluster["one"].words == "1 changed"
    assert [tuple(field) for field in by_cluster["one"].changes[0].fields] == [
        ("/data/color", '"red"', '"blue"')
    ]
    assert by_cluster["two"].words == "1 created"


@pytest.mark.servers_only
@pytest.mark.usefixtures("collected_static")
def test_no_answer_has_a_value_of_a_secret(fleet: Fleet) -> None:
    decided("web", spec())
    fleet.servers["one"].objects["/api/v1/namespaces/shop/secrets/login"] = secret(
        "live"
    )
    fleet.servers["two"].refusals["login"] = (422, "too large")
    client, ana = Client(), person("ana", "operator")
    client.force_login(ana)
    edit = secret("tried")
    token = {"authorization": f"Token {api_token(ana)}"}

    page = client.post(
        "/resources/apply/dry-run/", {"manifest": dump_yaml(edit)}
    ).content
    rest = Client().post(
        "/api/v1/placements/web/diffs",
        {"manifests": [edit]},
        content_type="application/json",
        headers=token,
    )

    assert b"/data/password" in page
    assert "too large" in rest.content.decode()
    assert found_in(page) | found_in(rest.content) == set()
    assert found_in(database_dump()) == set()


@pytest.mark.nightly
def test_objects_in_a_namespace_that_is_not_there_yet_are_not_tried(
    fleet: Fleet,
) -> None:
    for server in fleet.servers.values():
        del server.objects[NAMESPACE]

    result = run(placement_document("web", spec()), clusters=["one"])

    (answer,) = result.answers
    assert (answer.words, answer.unchecked) == (
        "1 created, 1 not tried",
        ("ConfigMap shop/settings",),
    )
    assert (
        "1 object not tried before what they need exists, such as a Namespace."
        in sentences(result)
    )


def test_a_cluster_that_gives_no_answer_is_named_with_the_reason(fleet: Fleet) -> None:
    decided("web", spec())
    fleet.servers["one"].tokens.clear()

    result = run(placement="web")

    assert sentences(result)[0] == "Could not be checked: one."
    (silent,) = [
        answer
        for answer in result.answers
        if answer.outcome is DryRunOutcome.NOT_REACHED
    ]
    assert silent.message.startswith("Credentials rejected")


@pytest.mark.usefixtures("fleet")
def test_a_cluster_without_an_answer_in_time_delays_no_other_and_is_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decided("web", spec())
    monkeypatch.setattr(dry_runs, "SECONDS", 2.0)
    with serve(freeze) as frozen:
        fields = {"server": frozen.url, "ca": authority().pem, "token": "marker-token"}
        set_connection(
            "one", ConnectionInput(fields=fields), by=None, now=NOW, confirmed=True
        )
        started = monotonic()
        result = run(placement="web", threads=2)

    assert monotonic() - started < 5
    assert [(answer.cluster, answer.message) for answer in result.answers] == [
        ("one", "No answer within 2s"),
        ("two", ""),
    ]
    assert sentences(result)[0] == "Could not be checked: one."


@pytest.mark.usefixtures("fleet")
def test_clusters_that_no_thread_had_time_for_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decided("web", spec())
    monkeypatch.setattr(
        dry_runs,
        "call_all",
        lambda calls, **_: dict.fromkeys(calls, NotCalled.TIME_WAS_UP),
    )

    result = run(placement="web")

    assert [(answer.cluster, answer.message) for answer in result.answers] == [
        ("one", "No answer within 10s"),
        ("two", "No answer within 10s"),
    ]


@pytest.mark.usefixtures("fleet")
def test_no_transaction_is_open_while_clusters_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decided("web", spec())
    before, during = len(connection.savepoint_ids), []
    real = dry_runs.driver_for

    def noted(*arguments: Any, **options: Any) -> Driver:
        during.append(len(connection.savepoint_ids))
        return real(*arguments, **options)

    monkeypatch.setattr(dry_runs, "driver_for", noted)
    run(placement="web")

    assert during == [before, before]


def test_one_dry_run_of_a_process_waits_for_clusters_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decided("web", spec())
    monkeypatch.setattr(dry_runs, "_PATIENCE", 0.01)

    with dry_runs._place, pytest.raises(DryRunsBusyError):
        run(placement="web")

    assert run(placement="web").answers == ()


def test_an_edit_that_cannot_be_saved_calls_no_cluster() -> None:
    with pytest.raises(InvalidManifest) as error:
        run(config_map("lost", in_="nowhere"))

    assert "the namespace nowhere is not on the hub" in str(error.value.errors[0])


@pytest.mark.servers_only
@pytest.mark.usefixtures("fleet")
def test_an_unknown_cluster_is_an_error_at_its_place() -> None:
    with pytest.raises(InvalidManifest) as error:
        run(placement="web", clusters=["one", "nine"])

    assert [fault.path for fault in error.value.errors] == ["clusters[1]"]
