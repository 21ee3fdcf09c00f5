import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    """Nothing is looked up any more by the agreement that was stored; rows are written without it."""

    dependencies = [("placements", "0020_findings_check")]

    operations = [
        migrations.RemoveIndex("HubDecision", "hub_decision_again"),
        migrations.RemoveIndex("HubDecision", "hub_decision_disputed"),
        migrations.RemoveConstraint("HubDecision", "hub_decision_agreement_known"),
        migrations.RemoveConstraint("HubDecision", "hub_decision_confirmed_differs"),
        migrations.AlterField("HubDecision", "replay", models.CharField(blank=True, max_length=6)),
        migrations.AlterField(
            "HubDecision",
            "agreement",
            models.CharField(db_default="uncertain", default="uncertain", max_length=15),
        ),
        migrations.AlterField(
            "HubDecision", "judged_at", models.DateTimeField(default=django.utils.timezone.now)
        ),
    ]
