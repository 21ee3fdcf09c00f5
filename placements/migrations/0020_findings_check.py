import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Rename the class alone: a running release finds its table and columns."""

    dependencies = [("placements", "0019_assertions_in_file")]

    operations = [
        migrations.AlterModelTable("DoctorCheck", "placements_doctorcheck"),
        migrations.RenameModel("DoctorCheck", "FindingsCheck"),
        migrations.AlterField(
            "FindingsCheck",
            "placement",
            models.OneToOneField(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="findings_check",
                to="placements.placement",
            ),
        ),
    ]
