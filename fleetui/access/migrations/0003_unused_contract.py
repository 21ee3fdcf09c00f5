"""Remove the hash chain of the access log, which no release writes any more."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0002_team_boundary'),
    ]

    operations = [
        migrations.DeleteModel(
            name='AccessChain',
        ),
        migrations.RemoveConstraint(
            model_name='accessevent',
            name='access_event_sealed_with_digest',
        ),
        migrations.RemoveField(
            model_name='accessevent',
            name='digest',
        ),
        migrations.RemoveField(
            model_name='accessevent',
            name='sequence',
        ),
    ]
