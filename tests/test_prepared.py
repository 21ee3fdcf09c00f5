"""Prepared queries find what the plain ones find, and compile nothing after the first time."""

from datetime import datetime, timedelta
from unittest.mock import Mock

import pytest
from django.db.models import Q, QuerySet
from django.db.models.sql.compiler import SQLCompiler

from clusters.models import MemberCluster
from fleetui.hub_scope import in_hub
from fleetui.prepared import PreparedQuery
from tests.live_hubs import live_hub
from tests.rows import NOW, all_joined

pytestmark = pytest.mark.django_db


def joined_since(
    is_named: bool, *, name: str, moment: datetime
) -> QuerySet[MemberCluster]:
    is_wanted = Q(name=name) if is_named else ~Q(name=name)
    return MemberCluster.objects.filter(is_wanted, joined_at__gte=moment)


def test_it_finds_what_the_plain_query_finds() -> None:
    all_joined("alpha", "beta", "gamma")
    query = PreparedQuery(joined_since)
    before, after = NOW - timedelta(days=9000), NOW + timedelta(days=9000)

    for is_named in (True, False):
        for name in ("alpha", "beta", "none"):
            for moment in (before, after):
                plain = joined_since(is_named, name=name, moment=moment)
                found = query.rows(is_named, name=name, moment=moment)
                assert found == list(plain)
    assert query.rows(False, name="none", moment=before)


def test_it_reads_the_hub_in_scope() -> None:
    all_joined("alpha")
    query = PreparedQuery(joined_since)
    values = {"name": "none", "moment": NOW - timedelta(days=9000)}

    with in_hub(live_hub("east").pk):
        assert query.rows(False, **values) == []
    assert [row.name for row in query.rows(False, **values)] == ["alpha"]


def test_nothing_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    query = PreparedQuery(joined_since)
    query.rows(True, name="alpha", moment=NOW)
    compiled = Mock(side_effect=AssertionError)
    monkeypatch.setattr(SQLCompiler, "as_sql", compiled)

    assert query.rows(True, name="beta", moment=NOW - timedelta(days=1)) == []
    assert compiled.call_count == 0


def test_a_value_that_the_query_does_not_use_is_an_error() -> None:
    def clusters(*, name: str) -> QuerySet[MemberCluster]:
        del name
        return MemberCluster.objects.all()

    with pytest.raises(ValueError, match="does not use name"):
        PreparedQuery(clusters).rows(name="alpha")
