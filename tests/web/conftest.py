"""Pages are tested with the static files that they are served with: collected, hashed, compressed."""

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.test import override_settings


@pytest.fixture(scope="session", autouse=True)
def _collected_static(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with override_settings(STATIC_ROOT=tmp_path_factory.mktemp("static")):
        call_command("collectstatic", interactive=False, verbosity=0)
        yield
