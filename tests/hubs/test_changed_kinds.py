"""Kinds that a hub starts or ceases to serve while it is connected: discovery is asked again."""

import pytest

from clusters.models import Hub, HubStream
from fleetui.hub_scope import in_hub
from tests.hubs.fake_hub import FakeHub
from tests.hubs.hub_documents import eviction
from tests.hubs.test_watcher import hub_with_content
from tests.hubs.watching import Watching, watching

pytestmark = pytest.mark.django_db
OPTIONAL = "clusterresourceplacementevictions"
REQUIRED = "clusterresourcebindings"


def remove_kind(fake: FakeHub, plural: str) -> None:
    """Remove a CRD: its objects are deleted, its watches end, and its path is not there."""
    for _, each, namespace, name in list(fake.all_objects()):
        if each == plural:
            fake.delete(plural, name, namespace)
    with fake.changed:
        fake.absent.add(plural)
    fake.cut_watches()


def stream_states(run: Watching, plural: str) -> set[str]:
    with in_hub(run.hub.pk):
        return set(
            HubStream.objects.filter(plural=plural).values_list("state", flat=True)
        )


def test_an_optional_kind_that_is_removed_is_left_out_and_watched_once_it_is_there_again() -> (
    None
):
    fake = hub_with_content()
    fake.put(OPTIONAL, eviction("evict-1", "web", "paris"))
    with watching(fake) as run:
        run.work_until_state("live")
        run.work_until_equal()
        remove_kind(fake, OPTIONAL)

        run.work_until(lambda: any(OPTIONAL in one for one in run.absent()))
        assert run.state() == "live"
        assert stream_states(run, OPTIONAL) == {"absent"}
        run.work_until_equal()

        with fake.changed:
            fake.absent.clear()
        fake.put(OPTIONAL, eviction("evict-2", "web", "paris"))
        run.work_until(lambda: run.absent() == [])
        run.work_until_equal()
        assert run.state() == "live"


def test_without_a_required_kind_the_hub_is_not_supported_until_it_is_there_again() -> (
    None
):
    fake = hub_with_content()
    with watching(fake) as run:
        run.work_until_state("live")
        remove_kind(fake, REQUIRED)

        run.work_until_state("unsuitable")
        reason = Hub.objects.get(pk=run.hub.pk).state_reason
        assert (
            reason == f"the hub does not serve {REQUIRED}.placement.kubernetes-fleet.io"
        )

        with fake.changed:
            fake.absent.clear()
        run.work_until_state("live")
        run.work_until_equal()
