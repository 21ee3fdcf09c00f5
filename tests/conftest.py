"""What every test starts from: how hard Hypothesis tries."""

import os

from hypothesis import settings

# The same examples on every run and no clock: a build that was green stays green on a slower machine.
settings.register_profile("ci", deadline=None, derandomize=True, database=None)
# For a developer: new examples each time, and many of them.
settings.register_profile("dev", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
