from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleetui', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='event',
            name='is_warning',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(fields=['hub', 'is_warning', '-at', '-id'], name='event_of_type'),
        ),
    ]
