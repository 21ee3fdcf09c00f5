"""Keep the order of the keys of documents on PostgreSQL; what `jsonb` has sorted already stays sorted."""

from django.db import migrations

import fleetui.written


class Migration(migrations.Migration):
    """Placements and resources."""

    dependencies = [
        ("placements", "0009_scenarios"),
    ]

    operations = [
        migrations.AlterField(
            model_name="placement",
            name="document",
            field=fleetui.written.WrittenField(),
        ),
        migrations.AlterField(
            model_name="resource",
            name="content",
            field=fleetui.written.WrittenField(),
        ),
    ]
