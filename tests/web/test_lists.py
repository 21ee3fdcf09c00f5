"""A list has the same filters, orders and columns on its page, in its download and in REST."""

import ast
import csv
import html
import io
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.serializers import ChoiceField

from placements.api import filters
from placements.api.serializers import ClusterSerializer
from placements.services.filters import EVENT_KINDS, LIST_FILTERS
from placements.templatetags.fleet import state_words
from placements.web.clusters import CSV_COLUMNS
from tests.source_code import PRODUCT, nodes_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]

LISTS = {
    "clusters": ("/clusters/", filters.ClusterQuery),
    "placements": ("/placements/", filters.PlacementQuery),
    "resources": ("/resources/", filters.ResourceQuery),
    "overrides": ("/overrides/", filters.OverrideQuery),
    "evictions": ("/disruptions/", filters.EvictionQuery),
    "events": ("/activity/", filters.EventQuery),
    "checks": ("/checks/", filters.ChecksQuery),
    "access-log": ("/access-log/", filters.AccessLogQuery),
}
PAGING = {"after", "limit", "order"}


@pytest.fixture
def superuser() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_a_page_and_rest_accept_the_same_filters(
    superuser: Client, subtests: pytest.Subtests
) -> None:
    assert LISTS.keys() == LIST_FILTERS.keys()
    for noun, (address, query) in LISTS.items():
        fields = query().fields
        names = {"q", *LIST_FILTERS[noun]}
        assert names == fields.keys() - PAGING, noun
        for name in names:
            field = fields[name]
            value = "zz-none"
            if isinstance(field, ChoiceField):
                value = next(iter(field.choices))
            with subtests.test(f"{noun} {name}"):
                page = superuser.get(address, {name: value})
                rest = superuser.get(f"/api/v1/{noun}", {name: value})

                assert page.context["bar"].is_filtered
                shown = (value, state_words(value))
                assert any(one in page.context["bar"].text for one in shown)
                assert not page.context["bar"].unknown
                assert rest.status_code in (200, 404), rest.content


def test_a_page_and_rest_name_the_allowed_values_of_a_filter_or_an_order(
    superuser: Client, subtests: pytest.Subtests
) -> None:
    for noun, (address, query) in LISTS.items():
        for name, field in query().fields.items():
            if not isinstance(field, ChoiceField):
                continue
            with subtests.test(f"{noun} {name}"):
                page = superuser.get(address, {name: "xx"})
                rest = superuser.get(f"/api/v1/{noun}", {name: "xx"})

                [unknown] = page.context["bar"].unknown
                assert {value for value, _ in unknown.known} == set(field.choices)
                assert rest.status_code == 400
                [fault] = rest.json()["faults"]
                assert fault["path"] == name
                assert fault["message"].endswith(f"{', '.join(field.choices)}).")


def test_the_page_links_to_rest_with_all_its_filters(
    superuser: Client, subtests: pytest.Subtests
) -> None:
    for noun in LISTS.keys() - {"access-log"}:
        address, query = LISTS[noun]
        for name in ("q", *LIST_FILTERS[noun]):
            field = query().fields[name]
            value = "zz-none"
            if isinstance(field, ChoiceField):
                value = next(iter(field.choices))
            with subtests.test(f"{noun} {name}"):
                page = superuser.get(address, {name: value}).content.decode()
                twin = re.findall(r'<a href="([^"]*)" type="application/json"', page)[0]

                assert f"{name}={value}" in html.unescape(twin)


@pytest.mark.parametrize("order", ["-name", "placements", "-stale", "state"])
def test_page_download_and_rest_sort_alike(viewer: Client, order: str) -> None:
    page = viewer.get("/clusters/", {"order": order}).content.decode()
    table = viewer.get("/clusters/", {"order": order, "download": "csv"})
    rest = viewer.get("/api/v1/clusters", {"order": order}).json()["items"]

    names = re.findall(r'<th scope="row"><a [^>]*>([\w-]+)', page)
    lines = list(csv.DictReader(io.StringIO(table.content.decode())))
    assert [line["name"] for line in lines] == names
    assert [one["name"] for one in rest] == names
    assert [line["state"] for line in lines] == [one["state"] for one in rest]


def test_the_columns_of_a_download_are_fields_in_rest() -> None:
    assert CSV_COLUMNS.keys() <= {
        re.sub(r"_(\w)", lambda match: match[1].upper(), str(name))
        for name in ClusterSerializer().get_fields()
    }


@pytest.mark.xdist_group("sources")
def test_events_are_filtered_by_every_kind_that_an_event_has() -> None:
    constants: dict[str, set[str]] = {}
    used = set()
    for module in PRODUCT:
        for statement in module.tree.body:
            match statement:
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))
                ):
                    constants.setdefault(name, set()).add(value)
        for node in nodes_of(module.tree):
            match node:
                case ast.Call(
                    func=ast.Name(id="AuditEvent" | "record_event"), args=[_, kind, *_]
                ):
                    used.add(kind)
    kinds = set()
    for kind in used:
        if isinstance(kind, ast.Constant):
            kinds.add(kind.value)
        elif isinstance(kind, ast.Name):
            kinds |= constants.get(kind.id, set())

    assert {"hub", "channel", "cluster"} <= kinds
    assert kinds <= set(EVENT_KINDS)
