"""The three groups of `fleetui.roles`."""

from django.conf import settings
from django.db import migrations

ROLES = ("viewer", "operator", "approver")


def make_roles(apps, schema_editor):
    """Make the groups that are not there."""
    for name in ROLES:
        apps.get_model("auth", "Group").objects.get_or_create(name=name)


def keep_roles(apps, schema_editor):
    """Keep them: somebody may be in them."""


class Migration(migrations.Migration):
    """Data only."""

    dependencies = [
        ("fleetui", "0001_first"),
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [migrations.RunPython(make_roles, keep_roles)]
