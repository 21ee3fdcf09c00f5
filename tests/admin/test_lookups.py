"""By what lists of the admin are filtered: a closed list, for every registered admin, field and role."""

import re
from collections.abc import Callable, Iterator
from html import unescape

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.test import Client, RequestFactory

from fleetui.admin import ClosedLookups, FleetAdminSite
from tests.admin.pages import text_of
from tests.rows import decided, joined, person, pick_n_spec

admin.autodiscover()
pytestmark = pytest.mark.django_db
LOOKUPS = ("exact", "regex", "iregex", "startswith", "contains", "gt", "isnull")
PASSING = {
    "clusters.membercluster": {"verdict"},
    "auth.user": {"groups", "is_active", "is_superuser"},
    "clusters.hubgrant": {"hub", "role"},
    "access.teamgrant": {"hub", "role", "key"},
    "access.apitoken": {"scopes"},
    "mfa.authenticator": {"type"},
}
"""Fields of a model that its list may be filtered by, with exact values or `isnull`."""
CATASTROPHIC = r"(([^\0]*)*)*\0Z"


def lists() -> dict[type[Model], str]:
    return {
        model: f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        for model in admin.site._registry
    }


def lookups_of(model: type[Model]) -> Iterator[str]:
    """Yield every field of a model plain and with each lookup, and those of the models it refers to."""
    for field in model._meta.get_fields():
        yield field.name
        yield from (f"{field.name}__{lookup}" for lookup in LOOKUPS)
        if field.is_relation and field.related_model:
            for far in field.related_model._meta.get_fields():
                yield f"{field.name}__{far.name}__startswith"


@pytest.mark.parametrize("model", lists(), ids=lambda model: model._meta.label_lower)
def test_no_lookup_passes_but_those_of_the_page(
    model: type[Model], browser_of: Callable[[str], Client]
) -> None:
    joined("a", region="east")
    decided("web", pick_n_spec(1))
    browser_of("superuser")
    model_admin = admin.site._registry[model]
    people = (person("vera", "viewer"), User.objects.get(username="root"))
    passed = set()
    for lookup in lookups_of(model):
        for user in people:
            request = RequestFactory().get("/", {lookup: CATASTROPHIC})
            request.user = user
            try:
                model_admin.changelist_view(request)
            except (DisallowedModelAdminLookup, PermissionDenied):
                continue
            passed.add(lookup)

    fields = PASSING.get(model._meta.label_lower, set())
    exact = {
        end
        for field in fields
        for end in (field, f"{field}__exact", f"{field}__isnull")
    }
    assert passed <= exact
    assert {one.partition("__")[0] for one in passed} == fields
    assert isinstance(model_admin, ClosedLookups)


@pytest.mark.nightly
@pytest.mark.parametrize("role", ["viewer", "superuser"])
def test_every_filter_of_a_page_and_every_sort_order_works(
    browser_of: Callable[[str], Client], role: str
) -> None:
    joined("a", region="east")
    decided("web", pick_n_spec(1))
    client = browser_of(role)
    followed = 0
    for address in lists().values():
        page = client.get(address)
        if page.status_code == 403:
            continue
        assert page.status_code == 200, address
        for link in {
            unescape(one) for one in re.findall(r'href="(\?[^"]+)"', text_of(page))
        }:
            answer = client.get(f"{address}{link}")
            assert answer.status_code == 200, f"{address}{link}"
            followed += 1

    assert followed > 20


@pytest.mark.parametrize("role", ["viewer", "superuser"])
@pytest.mark.parametrize(
    "query",
    [
        "q=" + "x%20" * 1_500,
        "q=" + "x" * 10_000,
        "o=99999999999999999999",
        "o=-x.--1.1.1.2",
        "p=99999999999999999999",
        "p=-1",
        "all=1",
        "_facets=1",
        "_popup=1",
        "_to_field=connection",
        "_to_field=id",
        "_to_field=x__y",
        "e=1",
        "x=1",
        "id__in=1",
        "pk=1",
        "pk__regex=x",
        "kind=%00",
        "verdict=%00",
    ],
)
def test_no_other_parameter_of_a_list_fails(
    browser_of: Callable[[str], Client], role: str, query: str
) -> None:
    joined("a", region="east")
    decided("web", pick_n_spec(1))
    client = browser_of(role)

    statuses = {
        address: client.get(f"{address}?{query}").status_code
        for address in lists().values()
    }

    assert set(statuses.values()) <= {200, 302, 400, 403}, statuses
    if query.startswith(("id", "pk", "x=", "_to_field=connection", "_to_field=x")):
        assert not {200} & set(statuses.values()), statuses


def test_an_address_of_a_cluster_is_not_guessed(
    browser_of: Callable[[str], Client],
) -> None:
    joined("a")
    viewer = browser_of("viewer")

    answers = [
        viewer.get("/admin/clusters/membercluster/", {"document__regex": CATASTROPHIC}),
        viewer.get(
            "/admin/clusters/membercluster/",
            {"connection__server__startswith": "https://203"},
        ),
        viewer.get("/admin/auth/user/", {"password__contains": "x"}),
    ]

    assert [answer.status_code for answer in answers] == [400, 400, 403]


def test_the_admin_completes_nothing(browser_of: Callable[[str], Client]) -> None:
    query = {
        "app_label": "access",
        "model_name": "teamgrant",
        "field_name": "group",
        "term": "w",
    }

    statuses = [
        browser_of(role).get("/admin/autocomplete/", query).status_code
        for role in ("viewer", "superuser")
    ]

    assert statuses == [404, 404]


def test_links_of_other_pages_filter_lists(browser_of: Callable[[str], Client]) -> None:
    joined("a", region="east")
    decided("web", pick_n_spec(1))
    client = browser_of("superuser")
    user = User.objects.get(username="root")

    statuses = [
        client.get(address).status_code
        for address in (
            f"/admin/access/apitoken/?user__id__exact={user.pk}",
            "/admin/clusters/membercluster/?label=region:east",
        )
    ]

    assert statuses == [200] * 2


def test_an_admin_that_is_registered_later_is_closed_too() -> None:
    site = FleetAdminSite()
    for model in apps.get_models():
        site.register(model)

    request = RequestFactory().get("/")
    allowed = [
        model
        for model, model_admin in site._registry.items()
        if model_admin.lookup_allowed("pk__regex", "x", request)
    ]

    assert len(site._registry) > 40
    assert allowed == []
