"""The migration of integers that an earlier commit accepted as text."""

from datetime import UTC, datetime
from importlib import import_module

import pytest
from django.apps import apps
from django.db import connection

from placements.manifests.placement import parse_placement
from placements.models import DisruptionBudget, Placement, StagedStrategy
from placements.services.placements import save_placement
from tests.documents import Document

NOW = datetime(2026, 11, 28, tzinfo=UTC)
STAGES: Document = {
    "spec": {"stages": [{"name": "a", "maxConcurrency": "2"}, {"name": "b"}]}
}

pytestmark = pytest.mark.django_db


def test_the_migration_writes_integers_where_text_was_accepted() -> None:
    document = {
        "apiVersion": "placement.kubernetes-fleet.io/v1",
        "kind": "ClusterResourcePlacement",
        "metadata": {"name": "web"},
        "spec": {
            "resourceSelectors": [
                {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
            ],
            "strategy": {"rollingUpdate": {"maxUnavailable": 5, "maxSurge": "25%"}},
        },
    }
    save_placement(document, by=None, now=NOW)
    document["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] = "5"  # type: ignore[index]
    Placement.objects.update(document=document)
    StagedStrategy.objects.create(
        name="s", document=STAGES, created_at=NOW, updated_at=NOW
    )
    budget = {"spec": {"minAvailable": "1"}}
    DisruptionBudget.objects.create(
        name="web", document=budget, created_at=NOW, updated_at=NOW
    )

    migration = import_module("placements.migrations.0003_integers_written_as_text")
    migration.write_integers(apps, connection.schema_editor())

    rolling = parse_placement(
        Placement.objects.get().document
    ).spec.strategy.rolling_update
    assert rolling is not None
    assert (rolling.max_unavailable.number, str(rolling.max_surge)) == (5, "25%")
    assert StagedStrategy.objects.get().document["spec"]["stages"] == [
        {"name": "a", "maxConcurrency": 2},
        {"name": "b"},
    ]
    assert DisruptionBudget.objects.get().document == {"spec": {"minAvailable": 1}}
