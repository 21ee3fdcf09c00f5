"""Tests of live hubs; some open pages, which link to static files."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _served(collected_static: Path) -> None:
    """Collect the static files."""
