"""Second factors: who needs one, who has one, and how its key is kept."""

from collections.abc import Sequence

from allauth.mfa.models import Authenticator
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured

from fleetui.role_names import ADMINISTRATOR

MAIN_TYPES = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
"""What a login asks for; recovery codes are of use only beside one of them."""


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


def encrypt_key(text: str) -> str:
    return _cipher().encrypt(text.encode()).decode()


def decrypt_key(ciphertext: str) -> str:
    return _cipher().decrypt(ciphertext.encode()).decode()


def unreadable_keys(*, reencrypt: bool) -> list[str]:
    """Return the users whose keys cannot be decrypted; encrypt all others with the first key, if wanted."""
    cipher, found = _cipher(), set()
    rows = Authenticator.objects.exclude(type=Authenticator.Type.WEBAUTHN).select_related("user")
    for row in rows.order_by("pk").iterator():
        name = "secret" if row.type == Authenticator.Type.TOTP else "seed"
        try:
            ciphertext = cipher.rotate(row.data[name].encode()).decode()
        except InvalidToken:
            found.add(row.user.get_username())
            continue
        if reencrypt:
            row.data[name] = ciphertext
            row.save(update_fields=["data"])
    return sorted(found)


def _cipher() -> MultiFernet:
    """Return the cipher with the keys of credentials (`clusters/credentials.py`)."""
    keys: Sequence[str] = settings.CREDENTIAL_KEYS
    if not keys:
        try:
            keys = settings.CREDENTIAL_KEY_FILE.read_text(encoding="ascii").split()
        except OSError as error:
            raise ImproperlyConfigured("the file credential.keys is missing") from error
    return MultiFernet([Fernet(key) for key in keys])
