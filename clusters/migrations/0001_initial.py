"""Member clusters, their drivers' state, and the fleet's version."""

import django.db.models.deletion
from django.db import migrations, models

import fleetui.fields


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='FleetChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('label_keys', models.JSONField(default=list)),
                ('property_names', models.JSONField(default=list)),
                ('opens', models.BooleanField(default=False)),
                ('gone', models.JSONField(default=list)),
                ('reason', models.CharField(max_length=200)),
            ],
        ),
        migrations.CreateModel(
            name='FleetState',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.PositiveBigIntegerField(default=1)),
                ('readings', models.PositiveBigIntegerField(default=1)),
                ('observing_since', models.DateTimeField(null=True)),
                ('observed_at', models.DateTimeField(null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='fleet_state_has_one_row')],
            },
        ),
        migrations.CreateModel(
            name='MemberCluster',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63, unique=True)),
                ('document', fleetui.fields.OrderedJSONField()),
                ('revision', models.PositiveBigIntegerField(default=1)),
                ('membership', models.CharField(choices=[('joining', 'Joining'), ('joined', 'Joined'), ('leaving', 'Leaving')], default='joining', max_length=8)),
                ('joined_at', models.DateTimeField()),
                ('leaving_since', models.DateTimeField(blank=True, null=True)),
                ('is_demo', models.BooleanField(default=False)),
                ('driver', models.CharField(blank=True, max_length=30)),
                ('connection', models.JSONField(blank=True, default=dict)),
                ('properties', models.JSONField(blank=True, default=dict)),
                ('usage', models.JSONField(blank=True, default=dict)),
                ('expects_report', models.BooleanField(default=False)),
                ('has_reported', models.BooleanField(default=False)),
                ('as_of', models.DateTimeField(blank=True, null=True)),
                ('heartbeat_at', models.DateTimeField(blank=True, null=True)),
                ('agent_joined', models.CharField(blank=True, max_length=20)),
                ('agent_healthy', models.CharField(blank=True, max_length=20)),
                ('healthy_since', models.DateTimeField(blank=True, null=True)),
                ('observe_at', models.DateTimeField(blank=True, null=True)),
                ('verdict', models.CharField(blank=True, max_length=20)),
                ('verdict_reason', models.CharField(blank=True, max_length=200)),
                ('verdict_since', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['observe_at'], name='cluster_to_observe'), models.Index(fields=['verdict', 'name'], name='cluster_by_verdict')],
                'constraints': [models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='cluster_has_name'), models.CheckConstraint(condition=models.Q(('membership__in', ['joining', 'joined', 'leaving'])), name='cluster_membership_known'), models.CheckConstraint(condition=models.Q(models.Q(('leaving_since__isnull', False), ('membership', 'leaving')), models.Q(models.Q(('membership', 'leaving'), _negated=True), ('leaving_since__isnull', True)), _connector='OR'), name='cluster_leaving_since'), models.CheckConstraint(condition=models.Q(models.Q(('membership', 'leaving'), _negated=True), ('verdict', 'leaving'), _connector='OR'), name='cluster_leaving_is_not_eligible')],
            },
        ),
        migrations.CreateModel(
            name='SimulatedState',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('revision', models.PositiveBigIntegerField()),
                ('content', models.JSONField()),
                ('cluster', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='simulated_state', to='clusters.membercluster')),
            ],
        ),
        migrations.CreateModel(
            name='ClusterTaint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=317)),
                ('value', models.CharField(blank=True, max_length=63)),
                ('effect', models.CharField(default='NoSchedule', max_length=20)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='taints', to='clusters.membercluster')),
            ],
            options={
                'indexes': [models.Index(fields=['key', 'value'], name='taint_by_key_and_value')],
                'constraints': [models.UniqueConstraint(fields=('cluster', 'key', 'value', 'effect'), name='taint_once'), models.CheckConstraint(condition=models.Q(('key', ''), _negated=True), name='taint_has_key'), models.CheckConstraint(condition=models.Q(('effect', 'NoSchedule')), name='taint_effect_known')],
            },
        ),
        migrations.CreateModel(
            name='ClusterLabel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=317)),
                ('value', models.CharField(blank=True, max_length=63)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='labels', to='clusters.membercluster')),
            ],
            options={
                'indexes': [models.Index(fields=['key', 'value'], name='label_by_key_and_value')],
                'constraints': [models.UniqueConstraint(fields=('cluster', 'key'), name='label_key_once'), models.CheckConstraint(condition=models.Q(('key', ''), _negated=True), name='label_has_key')],
            },
        ),
    ]
