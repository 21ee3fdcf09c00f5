"""What the tests of credentials start from: two keys of the console."""

from collections.abc import Iterator

import pytest
from django.test import override_settings

from fleetui.env import new_encryption_key

KEYS = (new_encryption_key(), new_encryption_key())


@pytest.fixture(autouse=True)
def _keys() -> Iterator[None]:
    with override_settings(CREDENTIAL_KEYS=KEYS[:1], MEMBER_LOOPBACK=True):
        yield
