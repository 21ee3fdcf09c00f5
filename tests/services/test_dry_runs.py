"""Dry runs on the clusters: what they answer to an edit, which are called, and that nothing is written."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.test import override_settings

from clusters import kubernetes_drivers
from clusters.kubernetes_drivers import DriverCache
from clusters.models import MemberCluster
from clusters.operations.connection import ConnectionInput, set_connection
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.models import Event
from placements.explain.dry_runs import DryRunOutcome, dry_run_sentences
from placements.models import Binding, DryRun, Placement, Resource, ResourceSnapshot
from placements.services.dry_runs import LEASE, answers_of, is_due, run_due, start_dry_run
from placements.services.resources.operations import apply_resources
from tests.clusters.kubernetes.api_server import ApiServer
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer, serve
from tests.rows import NOW, config_map, decided, namespace, placement_document, simulated, spec

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
NAMESPACE, CONFIG = "/api/v1/namespaces/shop", "/api/v1/namespaces/shop/configmaps/settings"


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
            fields = {"server": self.links[name].url, "ca": authority().pem, "token": "marker-token"}
            set_connection(name, ConnectionInput(fields=fields), by=None, now=NOW, joins=True)
        simulated("three")
        MemberCluster.objects.update(verdict="", verdict_reason="", membership="joined")
        apply_resources([namespace("shop"), config_map("settings", data={"color": "red"})], by=None, now=NOW)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(kubernetes_drivers, "drivers", DriverCache())
    with override_settings(MEMBER_LOOPBACK=True), ExitStack() as stack:
        yield Fleet(stack)
    kubernetes_drivers.drivers.clear()


def run(*documents: dict[str, Any], **options: Any) -> DryRun:
    """Start a dry run, and let a worker run it."""
    manifests = "---\n".join(map(dump_yaml, documents))
    row = start_dry_run(manifests=manifests, by=None, now=NOW, **options)
    assert run_due(now=NOW, threads=0, clock=lambda: NOW) == 1
    row.refresh_from_db()
    return row


def sentences(row: DryRun) -> list[str]:
    answers = answers_of(row)
    return [
        one.text for one in dry_run_sentences(answers, not_checked=row.not_checked, left_out=row.left_out)
    ]


def test_a_refusal_of_one_cluster_has_the_message_of_its_server(fleet: Fleet) -> None:
    fleet.servers["two"].refusals["settings"] = (422, 'ConfigMap "settings" is invalid: too large')

    row = run(placement_document("web", spec()))

    assert sentences(row) == [
        "Would be refused on 1 cluster: two.",
        "Would change 1 object on 1 cluster.",
        "1 cluster simulated: not checked.",
    ]
    refused, changed = answers_of(row)
    assert (refused.cluster, refused.outcome) == ("two", DryRunOutcome.REFUSED)
    assert [(one.kind, one.name, one.message) for one in refused.refusals] == [
        ("ConfigMap", "settings", 'ConfigMap "settings" is invalid: too large')
    ]
    assert changed.words == "1 created"


@pytest.mark.servers_only
def test_nothing_is_written_on_the_clusters_or_on_the_hub(fleet: Fleet) -> None:
    models = (Placement, Binding, Resource, ResourceSnapshot, Event)
    before = [list(model.objects.order_by("pk").values()) for model in models]

    row = run(placement_document("web", spec()), config_map("more"))

    assert [list(model.objects.order_by("pk").values()) for model in models] == before
    assert [server.written for server in fleet.servers.values()] == [[], []]
    assert (row.manifests, row.ended_at, is_due(now=NOW)) == ("", NOW, False)


@pytest.mark.servers_only
def test_an_edit_of_a_resource_is_tried_where_placements_have_it(fleet: Fleet) -> None:
    decided("web", spec())
    live = config_map("settings", data={"color": "red"})
    fleet.servers["one"].objects[CONFIG] = live

    row = run(config_map("settings", data={"color": "blue"}))

    by_cluster = {one.cluster: one for one in answers_of(row)}
    assert by_cluster["one"].words == "1 changed"
    assert [tuple(one) for one in by_cluster["one"].changes[0].fields] == [("/data/color", '"red"', '"blue"')]
    assert by_cluster["two"].words == "1 created"


@pytest.mark.nightly
def test_objects_in_a_namespace_that_is_not_there_yet_are_not_tried(fleet: Fleet) -> None:
    for server in fleet.servers.values():
        del server.objects[NAMESPACE]

    row = run(placement_document("web", spec()), clusters=["one"])

    (answer,) = answers_of(row)
    assert (answer.words, answer.unchecked) == ("1 created, 1 not tried", ("ConfigMap shop/settings",))
    assert "1 object not tried before what they need exists, such as a Namespace." in sentences(row)


def test_a_cluster_that_gives_no_answer_is_named_with_the_reason(fleet: Fleet) -> None:
    decided("web", spec())
    fleet.servers["one"].tokens.clear()

    row = run(placement="web")

    assert sentences(row)[0] == "Could not be checked: one."
    (silent,) = [one for one in answers_of(row) if one.outcome is DryRunOutcome.NOT_REACHED]
    assert silent.message.startswith("Credentials rejected")


def test_an_edit_that_cannot_be_saved_queries_no_cluster() -> None:
    row = run(config_map("lost", in_="nowhere"))

    assert row.results == []
    assert "the namespace nowhere is not on the hub" in row.faults[0]


@pytest.mark.servers_only
@pytest.mark.usefixtures("fleet")
def test_an_unknown_cluster_is_an_error_at_its_place() -> None:
    with pytest.raises(InvalidManifest) as error:
        start_dry_run(placement="web", clusters=["one", "nine"], by=None, now=NOW)

    assert [one.path for one in error.value.errors] == ["clusters[1]"]


def test_a_dry_run_of_a_killed_worker_is_due_again() -> None:
    row = start_dry_run(placement="web", by=None, now=NOW)
    DryRun.objects.filter(pk=row.pk).update(run_at=NOW + LEASE)  # claimed, and never finished

    assert run_due(now=NOW, threads=0) == 0
    assert run_due(now=NOW + LEASE, threads=0) == 1
    assert not is_due(now=NOW + LEASE)
