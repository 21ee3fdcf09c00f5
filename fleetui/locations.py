"""Where the console finds its files and keeps its data: in a source tree, or installed from a wheel."""

from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
"""The source tree, or the folder of installed packages."""


def is_source_tree() -> bool:
    return (SOURCE / "manage.py").is_file()


def assets_folder() -> Path:
    """Return the folder with `templates` and `static`: a wheel has them inside of the package."""
    return SOURCE if is_source_tree() else Path(__file__).resolve().parent / "assets"


def data_folder(environ: Mapping[str, str]) -> Path:
    """Return the default folder for data: `var/` of the source tree, otherwise that of the user.

    Not `./var`: a command that is run in another folder would work on other data and not say so.
    """
    if is_source_tree():
        return SOURCE / "var"
    # The specification of these folders says to ignore a relative path.
    folder, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME", "")
    if folder.startswith("/"):
        return Path(folder) / "fleetui"
    # A service without a home folder gets the place that Linux has for the state of services.
    return (
        Path(home) / ".local" / "share" / "fleetui"
        if home
        else Path("/var/lib/fleetui")
    )
