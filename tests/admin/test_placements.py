"""What is only looked at: every list and page opens, with few queries, and shows no secrets."""

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from fleetui.models import Event
from placements.models import (
    Binding,
    Decision,
    DisruptionBudget,
    Drain,
    Eviction,
    Placement,
    PolicySnapshot,
    Resource,
    ResourceSnapshot,
)
from placements.services.disruption.budgets import save_budget
from placements.services.disruption.drains import RESYNC, advance_drains, drain
from placements.services.resources.operations import apply_resources
from tests.admin.pages import text_of
from tests.database import load_once
from tests.rows import NOW, all_joined, decided, namespace, pick_n_spec, run_due
from tests.services.rollouts.test_evictions import budget

pytestmark = pytest.mark.django_db
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "api-key", "namespace": "shop"},
    "data": {"password": "aHVzaA=="},
}
MODELS = [
    Placement,
    Resource,
    PolicySnapshot,
    ResourceSnapshot,
    Binding,
    Decision,
    Drain,
    Eviction,
    DisruptionBudget,
    Event,
]


@pytest.fixture(autouse=True)
def _hub() -> None:
    load_once("admin", _load_hub)


def _load_hub() -> None:
    """Put two placements of a namespace with a secret on five clusters."""
    apply_resources([namespace("shop"), SECRET], by=None, now=NOW)
    all_joined("a", "b", "c", "d", "e")
    decided("web", pick_n_spec(4))
    decided("db", pick_n_spec(3))
    drain("e", by=None, now=NOW)
    advance_drains(now=NOW)
    run_due()
    advance_drains(now=NOW + RESYNC)
    save_budget(budget(maxUnavailable=1), by=None, now=NOW)


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
def test_every_page_opens_and_none_saves(operator: Client, model: type) -> None:
    row = model.objects.latest("pk")  # type: ignore[attr-defined]
    url = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"  # type: ignore[attr-defined]

    page = operator.get(f"{url}{row.pk}/change/")

    assert page.status_code == 200
    assert 'name="_save"' not in text_of(page)
    assert operator.post(f"{url}{row.pk}/change/", {}).status_code == 403
    assert operator.post(f"{url}{row.pk}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
def test_every_list_searches_with_few_queries(
    viewer: Client, model: type, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    url = f"/admin/{model._meta.app_label}/{model._meta.model_name}/?q=e"  # type: ignore[attr-defined]

    with django_assert_max_num_queries(10) as queries:
        answer = viewer.get(url)

    blobs = ('"document"', '"content"', '"identities"', '"policy",', '"before"')
    assert answer.status_code == 200
    assert not [one["sql"] for one in queries.captured_queries if any(blob in one["sql"] for blob in blobs)]


def test_secrets_stay_secret(viewer: Client) -> None:
    secret = Resource.objects.get(kind="Secret")
    event = Event.objects.get(kind="resource", name__contains="api-key")

    pages = [f"/admin/placements/resource/{secret.pk}/change/", f"/admin/fleetui/event/{event.pk}/change/"]
    texts = [text_of(viewer.get(page)) for page in pages]

    assert ["aHVzaA==" in text for text in texts] == [False, False]
    assert ["password" in text for text in texts] == [True, True]


@pytest.mark.nightly
def test_a_placement_leads_to_its_page(viewer: Client) -> None:
    placement = Placement.objects.get(name="web")

    page = text_of(viewer.get(f"/admin/placements/placement/{placement.pk}/change/"))

    assert '<a href="/placements/web/">' in page


@pytest.mark.nightly
@pytest.mark.parametrize(("state", "count"), [("fulfilled", 2), ("pending", 0), ("nonsense", 2)])
def test_placements_are_filtered_by_state(viewer: Client, state: str, count: int) -> None:
    answer = viewer.get(f"/admin/placements/placement/?state={state}")

    assert answer.context["cl"].result_count == count


@pytest.mark.nightly
def test_a_drain_says_how_far_it_is_with_each_placement(viewer: Client) -> None:
    page = text_of(viewer.get(f"/admin/placements/drain/{Drain.objects.get().pk}/change/"))

    assert "db: Evicted." in page
    assert "web: Evicted." in page


@pytest.mark.nightly
def test_an_eviction_says_what_became_of_it(viewer: Client) -> None:
    page = text_of(viewer.get("/admin/placements/eviction/"))

    assert "Executed: nothing was placed there yet." in page
