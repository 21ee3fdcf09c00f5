"""Keep the order of the keys of documents on PostgreSQL; what `jsonb` has sorted already stays sorted."""

from django.db import migrations

import fleetui.written


class Migration(migrations.Migration):
    """Member clusters."""

    dependencies = [
        ("clusters", "0002_simulated_state"),
    ]

    operations = [
        migrations.AlterField(
            model_name="membercluster",
            name="document",
            field=fleetui.written.WrittenField(),
        ),
    ]
