"""Set the type of existing events to the one that new events get when they are recorded."""

from django.db import migrations

_BATCH = 1000
_WARNINGS = ("fail", "lost", "refused", "stalled", "not ready", "unreachable", "rejected", "drift")


def warns(verb, after):
    """Return what `fleetui.audit.warns` did when this was written."""
    facts = after if isinstance(after, dict) else {}
    words = f"{verb} {facts.get('reason', '')} {facts.get('because', '')}".lower()
    return bool(facts.get("verdict")) or any(word in words for word in _WARNINGS)


def set_types(apps, schema_editor):
    rows = apps.get_model("fleetui", "Event")._base_manager.using(schema_editor.connection.alias)
    facts = rows.values_list("pk", "verb", "after").order_by("pk").iterator(chunk_size=_BATCH)
    warnings = [pk for pk, verb, after in facts if warns(verb, after)]
    for start in range(0, len(warnings), _BATCH):
        rows.filter(pk__in=warnings[start : start + _BATCH]).update(is_warning=True)


class Migration(migrations.Migration):

    dependencies = [
        ("fleetui", "0002_event_type"),
    ]

    operations = [
        migrations.RunPython(set_types, migrations.RunPython.noop),  # the column goes with 0002
    ]
