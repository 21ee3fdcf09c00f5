"""An action on all clusters that match a filter changes those of its preview, at every door."""

import re
from dataclasses import fields
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.http import QueryDict
from django.test import Client

from clusters.filters import (
    ClusterFilter,
    ClusterFilterState,
    clusters_matching,
    filter_params,
    filter_text,
    parse_filter_text,
)
from clusters.models import MemberCluster
from placements.web.bulk_changes import cluster_filter
from tests.api.test_remote_commands import _elsewhere, run  # noqa: F401
from tests.rows import joined

pytestmark = pytest.mark.django_db
FILTERS = {
    "text": ClusterFilter(text="old"),
    "labels": ClusterFilter(labels=("tier:gold", "!env")),
    "state": ClusterFilter(state=ClusterFilterState.NOT_ELIGIBLE),
    "verdict": ClusterFilter(verdict="unhealthy"),
}


@pytest.fixture(autouse=True)
def fleet() -> None:
    joined("old", tier="gold")
    joined("other", env="prod")
    joined("third", env="prod")
    MemberCluster.objects.filter(name="old").update(verdict="unhealthy")


def test_every_field_of_the_filter_is_tried() -> None:
    assert set(FILTERS) == {field.name for field in fields(ClusterFilter)}


@pytest.mark.parametrize("wanted", FILTERS.values(), ids=FILTERS)
def test_a_filter_is_the_same_as_parameters_and_as_text(wanted: ClusterFilter) -> None:
    query = QueryDict(mutable=True)
    for key, values in filter_params(wanted).items():
        query.setlist(key, values)

    assert cluster_filter(query) == wanted
    assert parse_filter_text(filter_text(wanted)) == wanted


@pytest.mark.parametrize("wanted", FILTERS.values(), ids=FILTERS)
def test_a_page_applies_to_the_clusters_of_its_preview(wanted: ClusterFilter) -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    matching = list(clusters_matching(wanted).values_list("name", flat=True))

    preview = browser.post(
        "/clusters/bulk/cordon/", {"all": "1", **filter_params(wanted)}
    )
    hidden = re.findall(
        r'type="hidden" name="(\w+)" value="([^"]*)"', preview.content.decode()
    )
    form = {name: unescape(value) for name, value in hidden}
    joined("later", tier="gold")
    MemberCluster.objects.filter(name="later").update(verdict="unhealthy")
    browser.post("/clusters/bulk/cordon/", {**form, "do": "apply"})

    assert matching == ["old"]
    assert _cordoned() == matching


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize("wanted", FILTERS.values(), ids=FILTERS)
def test_a_command_sends_the_whole_filter_to_a_server(wanted: ClusterFilter) -> None:
    code, _, errors = run("change_clusters", "cordon", "--filter", filter_text(wanted))

    assert (code, errors) == (0, "")
    assert _cordoned() == ["old"]


def _cordoned() -> list[str]:
    names = MemberCluster.objects.filter(taints__key="cordon-key")
    return list(names.values_list("name", flat=True))
