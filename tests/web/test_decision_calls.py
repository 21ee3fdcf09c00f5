"""Gates on how much code of this project a page enters: what a reader of the code has to follow."""

import pytest
from django.test import Client
from django.utils import timezone

from placements.models import Decision
from placements.services.demo.load import load_demo
from tests.caches import forget_cached_records
from tests.load.entered_code import record_entered_code

pytestmark = pytest.mark.django_db
MOST_MODULES, MOST_FUNCTIONS = 44, 348
"""Of the page of a decision; lower them, never raise them (docs/adr/0032)."""


@pytest.mark.nightly
def test_the_page_of_a_decision_enters_few_modules_and_functions(
    operator: Client,
) -> None:
    load_demo(9, by=None, now=timezone.now())
    latest = (
        Decision.objects.filter(picked_count__gt=0)
        .select_related("record")
        .latest("pk")
    )
    address = f"/decisions/{latest.record.decision_id}/"
    operator.get(address)  # compiles templates
    forget_cached_records()

    with record_entered_code() as entered:
        response = operator.get(address)

    assert response.status_code == 200
    assert entered.count("unpack") == 1
    assert len(entered.modules) <= MOST_MODULES, entered.modules
    assert len(entered.functions) <= MOST_FUNCTIONS, entered.functions
