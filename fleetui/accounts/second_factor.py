"""Second factors: who needs one, who has one, and how its key is kept."""

from allauth.mfa.models import Authenticator
from cryptography.fernet import InvalidToken
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User

from fleetui.encryption import cipher
from fleetui.role_names import ADMINISTRATOR

MAIN_TYPES = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
"""What a login requires; recovery codes are of use only beside one of them."""


def requires_second_factor(user: User) -> bool:
    """Return whether a role of the user requires a second factor, on any hub."""
    roles = settings.SECOND_FACTOR_ROLES
    if not roles:
        return False
    if user.is_superuser:
        return ADMINISTRATOR in roles
    groups = list(user.groups.values_list("pk", "name"))
    if any(name in roles for _, name in groups):
        return True
    grants = apps.get_model("clusters", "HubGrant")._default_manager
    return bool(grants.filter(group__in=[pk for pk, _ in groups], role__in=roles).exists())


def has_second_factor(user: User) -> bool:
    return Authenticator.objects.filter(user=user, type__in=MAIN_TYPES).exists()


def is_second_factor_due(user: User) -> bool:
    return requires_second_factor(user) and not has_second_factor(user)


def unreadable_keys(*, reencrypt: bool) -> list[str]:
    """Return the users whose keys cannot be decrypted; encrypt all others with the first key, if wanted."""
    keys, names = cipher(), set()
    rows = Authenticator.objects.exclude(type=Authenticator.Type.WEBAUTHN).select_related("user")
    for row in rows.order_by("pk").iterator():
        name = "secret" if row.type == Authenticator.Type.TOTP else "seed"
        try:
            ciphertext = keys.rotate(row.data[name].encode()).decode()
        except InvalidToken:
            names.add(row.user.get_username())
            continue
        if reencrypt:
            row.data[name] = ciphertext
            row.save(update_fields=["data"])
    return sorted(names)
