"""What a run rolls out, by the number of the revision."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("placements", "0024_samples_of_staged_runs"),
    ]

    operations = [
        migrations.AddField(
            model_name="resourcesnapshot",
            name="revision_number",
            field=models.PositiveBigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="rollout",
            name="revision_number",
            field=models.PositiveBigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="stagedrun",
            name="revision_number",
            field=models.PositiveBigIntegerField(null=True),
        ),
    ]
