"""A console with a folder and a database of its own, in a process that measures it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_console(**variables: str) -> Iterator[str]:
    """Set Django up with a new database, in the local hub; yield the folder. Import nothing of it before."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"FLEETUI_VAR_DIR": folder, **variables}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
        import django  # noqa: PLC0415 -- only after the folder is set

        django.setup()
        from django.core.management import call_command  # noqa: PLC0415 -- as above

        from fleetui.hub_scope import LOCAL_HUB, in_hub  # noqa: PLC0415 -- as above

        call_command("migrate", verbosity=0)
        with in_hub(LOCAL_HUB):
            yield folder
