"""How much tests try: property tests an eighth of the examples of `make test-all` in `make test`."""

import os
from typing import Any

from hypothesis import settings

FEWEST = 12
IS_FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"
"""Whether this is `make test-all`. A test that reads it has the mark `larger`."""

# The same examples on every run and no clock: a build that was green stays green on a slower machine.
settings.register_profile(
    "quick", deadline=None, derandomize=True, database=None, max_examples=FEWEST
)
settings.register_profile(
    "full", deadline=None, derandomize=True, database=None, max_examples=100
)
# For a developer: new examples each time, and many of them.
settings.register_profile("dev", deadline=None, max_examples=500)


def load_profile() -> None:
    """Load the profile that HYPOTHESIS_PROFILE names, else the quick one."""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def examples(number: int, **more: Any) -> settings:
    """Return the settings of a test that tries so many examples in the full profile."""
    return settings(
        max_examples=max(FEWEST, number * settings().max_examples // 100), **more
    )
