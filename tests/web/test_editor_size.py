"""Every change in the editor stays small and quick on a fleet of 5,000."""

import re
import time
from datetime import UTC, datetime

import pytest
from django.test import Client

from placements.models import Draft, Placement
from placements.operations.demo import load_demo

pytestmark = pytest.mark.django_db

MOST_BYTES, MOST_QUERIES = 60_000, 16
NAMES = ("storefront", "mobile-api", "feature-flags", "monitoring", "archive")


def _given(page: str) -> dict[str, str]:
    form = page.partition('id="editing"')[2].partition("</form>")[0]
    found = dict(re.findall(r'<input [^>]*name="([^"]*)"[^>]*value="([^"]*)"', form))
    for name, inner in re.findall(r'<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL):
        found[name] = re.findall(r'<option value="([^"]*)" selected', inner)[0]
    return found


def test_a_change_is_answered_with_little(operator: Client, django_assert_max_num_queries) -> None:
    load_demo(5000, by=None, now=datetime.now(UTC))
    told = []
    for name in NAMES:
        page = operator.get(f"/placements/{name}/edit/").content.decode()
        number = {
            "spec.revisionHistoryLimit": "7",
            "spec.policy.numberOfClusters": "120"
            if Placement.objects.get(name=name).number_of_clusters
            else "",
        }
        sent = {**_given(page), **{key: value for key, value in number.items() if value}}
        operator.post(f"/placements/{name}/edit/", sent, headers={"HX-Request": "true"})
        address = f"/drafts/{Draft.objects.get(placement__name=name).pk}/"
        sent["spec.revisionHistoryLimit"] = "8"
        with django_assert_max_num_queries(MOST_QUERIES) as queries:
            began = time.perf_counter()
            answer = operator.post(address, sent, headers={"HX-Request": "true"})
            took = (time.perf_counter() - began) * 1000
        told.append(f"{took:6.1f} ms {len(queries):2} queries {len(answer.content):6} bytes {name}")
        assert answer.status_code == 200
        assert "picked" in answer.content.decode() or "placed" in answer.content.decode()
        assert len(answer.content) <= MOST_BYTES
        assert len(page) <= MOST_BYTES
    print(f"\neditor at {5000} clusters:", *told, sep="\n")  # noqa: T201 -- a measurement
