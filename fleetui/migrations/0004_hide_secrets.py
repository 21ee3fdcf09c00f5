"""Take what Secrets held out of the events that were written before it was hidden; nothing brings it back."""

from collections.abc import Mapping
from typing import Any

from django.db import migrations

_COPY = "kubectl.kubernetes.io/last-applied-configuration"


def hide(apps: Any, _: object) -> None:
    """Keep the keys, not the values."""
    rows = apps.get_model("fleetui", "Event").objects.filter(kind="resource", name__startswith="/Secret/")
    for event in rows.iterator():
        event.before, event.after = _hidden(event.before), _hidden(event.after)
        event.save(update_fields=["before", "after"])


def _hidden(content: Any) -> Any:
    if not isinstance(content, Mapping):
        return content
    fields = [field for field in ("data", "stringData") if isinstance(content.get(field), Mapping)]
    shown = {**content, **{field: dict.fromkeys(content[field], "(hidden)") for field in fields}}
    metadata = dict(shown.get("metadata") or {})
    if _COPY in (metadata.get("annotations") or {}):
        metadata["annotations"] = {**metadata["annotations"], _COPY: "(hidden)"}
    return {**shown, "metadata": metadata}


class Migration(migrations.Migration):
    """Events are there since the first migration."""

    dependencies = [("fleetui", "0003_pulse")]
    operations = [migrations.RunPython(hide, migrations.RunPython.noop)]
