"""A placement that is deleted while something is computed about it: nothing is written, nothing fails."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from placements.models import AssertionCheck, FindingsCheck, Placement, StalenessCheck
from placements.services import assertions, checks, verification
from tests.rows import NOW, assertion_entry, decided, joined, pick_n_spec, save_entries

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("module", "check", "model"),
    [
        (checks, checks.check_due, FindingsCheck),
        (assertions, assertions.check_due, AssertionCheck),
        (verification, verification.refresh_staleness, StalenessCheck),
    ],
)
def test_nothing_is_written_about_a_placement_that_was_deleted_meanwhile(
    module: Any, check: Callable[..., int], model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined("a")
    decided("web", pick_n_spec(1))
    save_entries(assertion_entry("gold", {"minFree": 1}, placements=["web"]))
    model.objects.all().delete()
    computed = module.cycles_of
    seen = []

    def deleted_after(*arguments: Any, **options: Any) -> Iterator[Any]:
        for one in list(computed(*arguments, **options)):
            seen.append(one)
            Placement.objects.all().delete()
            yield one

    monkeypatch.setattr(module, "cycles_of", deleted_after)

    check(now=NOW)

    assert seen
    assert not model.objects.exists()
    connection.check_constraints()
