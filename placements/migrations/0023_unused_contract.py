"""Remove the tables and columns that no release has used since 0014 to 0021."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('placements', '0022_no_pending_hub_decisions'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='assertioncheck',
            name='documents',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='agreement',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='confirmed_at',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='differences',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='differences_count',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='engine',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='hub_behind',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='judged_at',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='judged_count',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='policy_snapshot_uid',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='recheck_at',
        ),
        migrations.RemoveField(
            model_name='hubdecision',
            name='replay',
        ),
        migrations.DeleteModel(
            name='AssertionDocument',
        ),
        migrations.DeleteModel(
            name='BulkChange',
        ),
        migrations.DeleteModel(
            name='CollectionChange',
        ),
        migrations.DeleteModel(
            name='CollectionState',
        ),
        migrations.DeleteModel(
            name='DryRun',
        ),
        migrations.DeleteModel(
            name='RebalancePlan',
        ),
        migrations.DeleteModel(
            name='ScenarioDecision',
        ),
        migrations.DeleteModel(
            name='Scenario',
        ),
    ]
