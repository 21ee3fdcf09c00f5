"""Integers that were accepted as text, such as `maxUnavailable: "5"`, become integers."""

from collections.abc import Iterator
from typing import Any

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_AMOUNTS = ("maxUnavailable", "maxSurge", "minAvailable", "maxConcurrency")
_COLUMNS = {
    "Placement": ("document",),
    "StagedStrategy": ("document",),
    "StagedRun": ("strategy",),
    "DisruptionBudget": ("document",),
}


def _places(value: Any) -> Iterator[dict[str, Any]]:
    """Yield where a manifest may hold amounts: its spec, the limits of a rollout, every stage."""
    spec = value.get("spec", value) if isinstance(value, dict) else None
    if not isinstance(spec, dict):
        return
    yield spec
    strategy = spec.get("strategy")
    if isinstance(strategy, dict) and isinstance(strategy.get("rollingUpdate"), dict):
        yield strategy["rollingUpdate"]
    stages = spec.get("stages")
    for stage in stages if isinstance(stages, list) else ():
        if isinstance(stage, dict):
            yield stage


def write_integers(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    database = schema_editor.connection.alias
    for model_name, columns in _COLUMNS.items():
        rows = apps.get_model("placements", model_name)._base_manager.using(database)
        for row in rows.only("pk", *columns).iterator(chunk_size=500):
            is_changed = False
            for place in (one for column in columns for one in _places(getattr(row, column))):
                for key in _AMOUNTS:
                    text = place.get(key)
                    if isinstance(text, str) and text.isdecimal():
                        place[key] = int(text)
                        is_changed = True
            if is_changed:
                rows.filter(pk=row.pk).update(**{column: getattr(row, column) for column in columns})


class Migration(migrations.Migration):
    dependencies = [("placements", "0002_seal_secrets")]

    operations = [
        # The release before reads integers, too.
        migrations.RunPython(write_integers, migrations.RunPython.noop),
    ]
