"""manage.py evict and drain, and budgets by apply and export."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError

from placements.models import Eviction
from placements.services.disruption.budgets import save_budget
from placements.services.disruption.drains import advance_drains
from tests.commands import call_command
from tests.rows import NOW, all_joined, decided, pick_n_spec, spec
from tests.services.rollouts.test_evictions import budget
from tests.services.rollouts.world import settled_world

pytestmark = pytest.mark.django_db


def output_of(*words: str) -> str:
    """Return what a command writes."""
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def test_evict_says_what_became_of_it() -> None:
    settled_world(3, pick_n_spec(3))
    save_budget(budget(maxUnavailable=1), by=None, now=NOW)

    assert output_of("evict", "web", "c000").startswith(
        "Executed: the disruption budget allows it"
    )
    with pytest.raises(CommandError, match="does not allow it") as refused:
        output_of("evict", "web", "c001")
    assert refused.value.returncode == 1
    with pytest.raises(CommandError, match="not on this cluster") as invalid:
        output_of("evict", "web", "c009")
    assert invalid.value.returncode == 2
    before = Eviction.objects.count()
    with pytest.raises(CommandError, match="no placement is named 'api'"):
        output_of("evict", "api", "c000")
    assert Eviction.objects.count() == before


def test_drain_is_looked_at_begun_and_cancelled() -> None:
    world = settled_world(2, spec())

    preview = output_of("drain", "c001", "--dry-run")
    assert "message: No replacement needed (PickAll)." in preview
    assert "drain: null" in preview
    assert output_of("drain", "c001") == "Drain of c001 started.\n"
    advance_drains(now=world.now.replace(year=2100))
    assert "message: Removing resources." in output_of("drain", "c001", "--dry-run")
    assert output_of("cancel-drain", "c001").startswith("Drain of c001 canceled")
    with pytest.raises(CommandError, match="not being drained"):
        output_of("cancel-drain", "c001")
    for words in (["c009"], ["c009", "--dry-run"]):
        with pytest.raises(CommandError, match="cluster 'c009' not found"):
            output_of("drain", *words)


def test_budgets_are_exported_as_they_were_written() -> None:
    all_joined("a")
    decided("web", pick_n_spec(1))
    save_budget(budget(maxUnavailable="30%"), by=None, now=NOW)

    assert json.loads(output_of("export", "budgets", "-o", "json", "--no-status"))[
        "items"
    ] == [budget(maxUnavailable="30%")]
