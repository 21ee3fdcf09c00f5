"""When a worker last answered."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleetui", "0002_roles")]
    operations = [
        migrations.CreateModel(
            name="Pulse",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
            ],
        ),
    ]
