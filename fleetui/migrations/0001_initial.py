"""Audit events, worker heartbeats, and the groups of the three roles."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from fleetui.initial_migration import InitialMigration

import fleetui.fields
import fleetui.hub_scope
import fleetui.request_ids

ROLES = ("viewer", "operator", "approver", "cluster-administrator")


def create_roles(apps, schema_editor):
    for name in ROLES:
        apps.get_model("auth", "Group").objects.get_or_create(name=name)


class Migration(InitialMigration):

    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='WorkerHeartbeat',
            fields=[
                ('queue', models.CharField(max_length=100, primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
                ('waiting', models.PositiveIntegerField(default=0)),
                ('busy_since', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='PeriodicWork',
            fields=[
                ('name', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('due_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Event',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hub', models.PositiveBigIntegerField(default=fleetui.hub_scope.current_hub_id, editable=False)),
                ('at', models.DateTimeField()),
                ('actor_name', models.CharField(max_length=150)),
                ('verb', models.CharField(max_length=40)),
                ('kind', models.CharField(max_length=20)),
                ('name', models.CharField(max_length=700)),
                ('revision', models.PositiveBigIntegerField(null=True)),
                ('before', fleetui.fields.ManifestField(null=True)),
                ('after', fleetui.fields.ManifestField(null=True)),
                ('request_id', models.CharField(blank=True, default=fleetui.request_ids.current_request_id, editable=False, max_length=32)),
                ('actor', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('is_warning', models.BooleanField(db_default=False, default=False)),
            ],
            options={
                'indexes': [models.Index(fields=['hub', 'kind', 'name', '-at', '-id'], name='event_of_object'), models.Index(fields=['hub', 'actor_name', '-at', '-id'], name='event_of_actor'), models.Index(fields=['hub', '-at', '-id'], name='event_by_time'), models.Index(fields=['hub', '-id'], name='event_latest'), models.Index(fields=['hub', 'is_warning', '-at', '-id'], name='event_of_type')],
                'constraints': [models.CheckConstraint(condition=models.Q(('verb', ''), _negated=True), name='event_has_verb'), models.CheckConstraint(condition=models.Q(models.Q(('kind', ''), _negated=True), models.Q(('name', ''), _negated=True)), name='event_has_object')],
            },
        ),
        # Nothing to undo: users may belong to the groups.
        migrations.RunPython(create_roles, migrations.RunPython.noop),
    ]
