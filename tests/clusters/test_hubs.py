"""The table of hubs, and the scope that a query runs in."""

from contextvars import Context
from datetime import UTC, datetime
from functools import partial

import pytest
from celery import current_app, shared_task
from django.core.management.base import CommandError
from django.db import IntegrityError, transaction

from clusters.drivers.concurrency import call_all
from clusters.kubernetes_drivers import hub_id
from clusters.models import Hub, MemberCluster
from fleetui.hub_scope import LOCAL_HUB, ScopeError, current_hub_id, in_hub
from placements.models import Binding, Decision, Placement
from placements.services.pruning import prune
from tests.commands import call_command
from tests.live_hubs import live_hub, move_rows_to
from tests.rows import NOW, all_joined, decided, joined, pick_n_spec

pytestmark = pytest.mark.django_db


def test_the_local_hub_exists_and_its_uid_names_this_installation() -> None:
    local = Hub.objects.get()

    assert (local.pk, local.name, local.kind, local.is_local) == (
        LOCAL_HUB,
        "local",
        "local",
        True,
    )
    assert hub_id() == str(local.uid)


@pytest.mark.parametrize("name", ["", "local", "new", "api", "admin", "static"])
def test_a_live_hub_has_a_name_that_is_not_reserved(name: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        live_hub(name)


def test_a_name_is_free_again_once_its_hub_is_removed() -> None:
    now = datetime.now(UTC)
    live_hub("paris", state="removed", removed_at=now)
    live_hub("paris")

    with pytest.raises(IntegrityError), transaction.atomic():
        live_hub("paris")


def test_only_row_1_is_local_and_it_stays() -> None:
    for columns in (
        {"kind": "local"},
        {"state": "removed"},
        {"removed_at": datetime.now(UTC)},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            live_hub("paris", **columns)
    with pytest.raises(IntegrityError), transaction.atomic():
        Hub.objects.filter(pk=LOCAL_HUB).update(kind="kubefleet")
    with pytest.raises(IntegrityError), transaction.atomic():
        Hub.objects.filter(pk=LOCAL_HUB).update(
            state="removed", removed_at=datetime.now(UTC)
        )


def test_a_scope_ends_with_its_block_and_a_new_context_has_none() -> None:
    with in_hub(7):
        assert current_hub_id() == 7

    assert current_hub_id() == LOCAL_HUB
    with pytest.raises(ScopeError):
        Context().run(current_hub_id)


def nothing() -> None:
    pass


def test_calls_in_threads_have_the_hub_of_the_caller() -> None:
    with in_hub(7):
        answers = call_all(
            {1: current_hub_id, 2: current_hub_id},
            threads=2,
            seconds=5,
            patience=5,
            at_end=nothing,
        )
        found = dict(answers)

    assert found == {1: 7, 2: 7}


def test_a_task_works_on_the_local_hub_whoever_calls_it() -> None:
    seen = []

    @shared_task(name="tests.look")
    def look(**_newer: object) -> None:
        seen.append(current_hub_id())

    try:
        Context().run(look)
        Context().run(partial(look, hub=7))
    finally:
        current_app.tasks.unregister("tests.look")

    assert seen == [LOCAL_HUB, 7]


def test_a_command_works_on_the_hub_that_it_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    joined("bravelion")
    live_hub("paris")

    call_command("export", "clusters")
    local = capsys.readouterr().out
    call_command("export", "clusters", hub="paris")

    assert "bravelion" in local
    assert "bravelion" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hub", "code", "words"),
    [("rome", 1, "no hub is named 'rome'"), ("paris", 1, "The live hub decides this.")],
)
def test_a_command_is_refused_on_a_live_hub_and_on_none(
    hub: str, code: int, words: str
) -> None:
    live_hub("paris")

    with pytest.raises(CommandError, match=words) as refused:
        call_command("load_demo", "9", hub=hub)

    assert refused.value.returncode == code


def test_a_mirrored_row_is_never_due_and_never_called() -> None:
    joined("bravelion")
    decided("web", pick_n_spec(1))
    paris = live_hub("paris")
    move_rows_to(paris)

    for model, columns in (
        (MemberCluster, {"driver": "simulated"}),
        (MemberCluster, {"observe_at": NOW}),
        (Placement, {"generation": 99}),
        (Placement, {"selection_generation": 99}),
        (Placement, {"rollout_generation": 99}),
        (Placement, {"lease_expires_at": NOW}),
        (Placement, {"rollout_requeue_at": NOW}),
        (Binding, {"next_call_at": NOW}),
    ):
        with in_hub(paris.pk), pytest.raises(IntegrityError), transaction.atomic():
            model.objects.update(**columns)
    with in_hub(paris.pk):
        assert [
            MemberCluster.objects.get().is_mirrored,
            Placement.objects.get().is_mirrored,
        ] == [True, True]


@pytest.mark.nightly
def test_records_that_another_hub_cites_are_not_pruned() -> None:
    all_joined("bravelion", "jumpingcat")
    decided("web", pick_n_spec(1))
    paris = live_hub("paris")
    move_rows_to(paris)

    prune(now=NOW)

    with in_hub(paris.pk):
        assert Decision.objects.get().record.fleet.clusters_count == 2
