"""API tokens, service accounts, grants of teams, and the access log."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from fleetui.initial_migration import InitialMigration


class Migration(InitialMigration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('clusters', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ServiceAccount',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='service_account', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('purpose', models.CharField(blank=True, max_length=200)),
                ('created_at', models.DateTimeField()),
                ('created_by', models.CharField(max_length=150)),
            ],
        ),
        migrations.CreateModel(
            name='AccessChain',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('head_sequence', models.PositiveBigIntegerField(default=0)),
                ('head_digest', models.CharField(blank=True, max_length=64)),
                ('anchor_sequence', models.PositiveBigIntegerField(default=0)),
                ('anchor_digest', models.CharField(blank=True, max_length=64)),
                ('anchored_at', models.DateTimeField(null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('pk', 1)), name='access_chain_one_row'), models.CheckConstraint(condition=models.Q(('anchor_sequence__lte', models.F('head_sequence'))), name='access_chain_in_order')],
            },
        ),
        migrations.CreateModel(
            name='AccessEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('actor_name', models.CharField(blank=True, max_length=150)),
                ('verb', models.CharField(max_length=40)),
                ('subject', models.CharField(blank=True, max_length=700)),
                ('address', models.CharField(blank=True, max_length=64)),
                ('request_id', models.CharField(blank=True, max_length=64)),
                ('details', models.JSONField(default=dict)),
                ('sequence', models.PositiveBigIntegerField(null=True, unique=True)),
                ('digest', models.CharField(blank=True, max_length=64)),
            ],
            options={
                'permissions': [('view_access_log', 'Can view the access log')],
                'indexes': [models.Index(fields=['-at', '-id'], name='access_by_time'), models.Index(fields=['actor_name', '-at', '-id'], name='access_of_actor'), models.Index(fields=['verb', '-at', '-id'], name='access_of_verb')],
                'constraints': [models.CheckConstraint(condition=models.Q(('verb', ''), _negated=True), name='access_event_has_verb'), models.CheckConstraint(condition=models.Q(models.Q(('digest', ''), ('sequence', None)), models.Q(('sequence__gt', 0), models.Q(('digest', ''), _negated=True)), _connector='OR'), name='access_event_sealed_with_digest')],
            },
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63)),
                ('prefix', models.CharField(max_length=16)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('scopes', models.CharField(max_length=40)),
                ('created_at', models.DateTimeField()),
                ('created_by', models.CharField(max_length=150)),
                ('expires_at', models.DateTimeField()),
                ('last_used_at', models.DateTimeField(null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'name'), name='api_token_name_once'), models.CheckConstraint(condition=models.Q(models.Q(('name', ''), _negated=True), models.Q(('scopes', ''), _negated=True)), name='api_token_has_name_and_scope'), models.CheckConstraint(condition=models.Q(('expires_at__gt', models.F('created_at'))), name='api_token_expires_later')],
            },
        ),
        migrations.CreateModel(
            name='TeamGrant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(choices=[('operator', 'operator'), ('approver', 'approver')], max_length=8)),
                ('key', models.CharField(help_text='For example team.', max_length=317, verbose_name='label')),
                ('value', models.CharField(help_text='For example payments.', max_length=63)),
                ('group', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='team_grants', to='auth.group')),
                ('hub', models.ForeignKey(default=1, on_delete=django.db.models.deletion.CASCADE, related_name='team_grants', to='clusters.hub')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('hub', 'group', 'role', 'key', 'value'), name='team_grant_once'), models.CheckConstraint(condition=models.Q(('role__in', ('operator', 'approver'))), name='team_grant_role_known'), models.CheckConstraint(condition=models.Q(models.Q(('key', ''), _negated=True), models.Q(('value', ''), _negated=True)), name='team_grant_has_label')],
            },
        ),
    ]
