"""Keep the order of the keys of what events tell; what `jsonb` has sorted already stays sorted."""

from django.db import migrations

import fleetui.written


class Migration(migrations.Migration):
    """What an object was before, and after."""

    dependencies = [
        ("fleetui", "0004_hide_secrets"),
    ]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="after",
            field=fleetui.written.WrittenField(null=True),
        ),
        migrations.AlterField(
            model_name="event",
            name="before",
            field=fleetui.written.WrittenField(null=True),
        ),
    ]
