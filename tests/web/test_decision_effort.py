"""How much code a page of a decision enters: the record is unpacked once, and panels are fetched by need."""

import pytest
from django.test import Client

from placements.models import Decision
from placements.services.decisions.records import forget_cached_records
from placements.services.demo.load import load_demo
from tests.load.entered_code import record_entered_code
from tests.rows import NOW

pytestmark = pytest.mark.django_db

# Lower them, never raise them. Aim: 35 modules.
MOST_MODULES = 41
MOST_FUNCTIONS = 290


def test_decision_page_enters_few_modules_and_functions(viewer: Client) -> None:
    load_demo(9, by=None, now=NOW)
    latest = Decision.objects.filter(placement_name="web").select_related("record").latest("number")
    address = f"/decisions/{latest.record.decision_id}/"
    viewer.get(address)
    forget_cached_records()

    with record_entered_code() as entered:
        response = viewer.get(address)

    assert response.status_code == 200
    assert entered.count("unpack") == 1
    assert len(entered.modules) <= MOST_MODULES, entered.modules
    assert len(entered.functions) <= MOST_FUNCTIONS, entered.functions
