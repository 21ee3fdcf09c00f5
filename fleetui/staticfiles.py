"""Static files that come out of installed packages: the script of the charts, and the editor of YAML."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from sys import prefix
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, Storage
from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticFiles(CompressedManifestStaticFilesStorage):
    """Finds the address of each file once: a list has hundreds of icons. With `DEBUG` files may change.

    Pages have the addresses with a hash, so the others are not kept: that halves what is compressed.
    """

    keep_only_hashed_files = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not settings.DEBUG:
            self.url = cache(super().url)

    def _save(self, name: str, content: "File[Any]") -> str:
        """Save a file; a style sheet or script without comments and indentation."""
        if not (unread := _UNREAD.get(name.partition("/")[0])):
            return super()._save(name, content)
        content.seek(0)  # it was read for the hash in its name
        return super()._save(name, ContentFile(unread.sub(b"", content.read())))


# Of scripts only comments that start a line or follow a statement: elsewhere they may
# be part of a text.
_UNREAD = {
    "css": re.compile(rb"\s*/\*.*?\*/|^ +", re.DOTALL | re.MULTILINE),
    "js": re.compile(
        rb"^/\*.*?\*/\n|^ +|(?<=[;{]) // [^\n]*", re.DOTALL | re.MULTILINE
    ),
}


@dataclass(frozen=True, slots=True)
class _Source:
    """Files below a folder of a package, by patterns, and the address that they get."""

    package: str
    folder: str
    prefix: str
    patterns: tuple[str, ...]


_ACE = (
    "ace.js",
    "mode-yaml.js",
    "ext-language_tools.js",
    "ext-searchbox.js",
    "css/ace.css",
    "css/main-*",
)
# Where `make` puts the smallest build of Plotly with the charts in use, if it can get it, by its address.
SMALL_BUILDS = Path(prefix) / "share" / "fleetui"
_SOURCES = (
    _Source("plotly", "package_data", "vendor", ("plotly.min.js",)),
    _Source("django_ace", "static/django_ace/ace", "vendor/ace", _ACE),
)


class PackageFinder(BaseFinder):
    """Finds files such as `vendor/plotly.min.js` in installed packages, so that no copy of them is kept here.

    Packages are only located, not imported. A smaller build of the same name comes first.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._files: list[tuple[str, FileSystemStorage]] = []
        for source in _SOURCES:
            spec = find_spec(source.package)
            if spec is None or spec.origin is None:
                raise ModuleNotFoundError(
                    f"{source.package} is not installed: pages use its scripts"
                )
            folder = Path(spec.origin).parent / source.folder
            if (SMALL_BUILDS / source.prefix).exists():
                folder = SMALL_BUILDS / source.prefix
            storage = FileSystemStorage(location=folder)
            storage.prefix = source.prefix  # type: ignore[attr-defined]  # how collectstatic learns where a file goes
            files = sorted(
                file for pattern in source.patterns for file in folder.glob(pattern)
            )
            self._files += [
                (file.relative_to(folder).as_posix(), storage) for file in files
            ]

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """Return the location of the file; an empty list for any other path, as Django requires."""
        for name, storage in self._files:
            if path == f"{storage.prefix}/{name}":  # type: ignore[attr-defined]
                place = storage.path(name)
                return [place] if find_all else place
        return []

    def list(
        self, ignore_patterns: Iterable[str] | None
    ) -> Iterator[tuple[str, Storage]]:
        yield from self._files
