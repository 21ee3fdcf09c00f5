"""Kustomizations of a repository: what each one reads, and what a program renders."""

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from posixpath import normpath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import load_documents

KUSTOMIZE, KUSTOMIZATIONS = (
    "kustomize",
    ("kustomization.yaml", "kustomization.yml", "Kustomization"),
)
RENDER_SECONDS = 60
_LISTS = (
    "resources",
    "bases",
    "components",
    "crds",
    "generators",
    "transformers",
    "validators",
)
_PATCHES = ("patches", "patchesStrategicMerge", "patchesJson6902", "replacements")
_LONGEST_REASON = 300


class SourceFile(NamedTuple):
    """A file of one side: its path, a hash of its content, and what reads the content."""

    name: str
    key: str
    read: Callable[[], bytes]


class NotRenderedError(Exception):
    """A kustomization or chart that cannot be rendered here; the message says why."""


class Render(StrEnum):
    """What is built by kustomize before it is read."""

    AUTO = "auto"
    KUSTOMIZE = "kustomize"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Kustomization:
    """One kustomization file: the files it reads and the folders of kustomizations it uses."""

    file: str
    paths: tuple[str, ...]
    is_component: bool = False

    @property
    def folder(self) -> str:
        return str(PurePosixPath(self.file).parent)

    def command(self, root: Path) -> list[str]:
        """Return the command that renders it below a root. Raise NotRenderedError."""
        return command_for(root, self.folder)

    @classmethod
    def parse(cls, name: str, content: bytes, tree: Collection[str]) -> "Kustomization":
        folder = str(PurePosixPath(name).parent)
        try:
            data = next((document.data for document in load_documents(content)), None)
        except InvalidManifest:
            # What it reads is not known: kustomize may read it nevertheless, and most name files beside it.
            beside = (
                one
                for one in tree
                if str(PurePosixPath(one).parent) == folder and one != name
            )
            return cls(name, tuple(beside))
        if not isinstance(data, dict):
            return cls(name, ())
        paths = (
            normpath(f"{folder}/{path}") for path in paths_in(data) if "://" not in path
        )
        return cls(name, tuple(paths), is_component=data.get("kind") == "Component")


@dataclass(frozen=True)
class Kustomizations:
    """All kustomizations of a tree, by their folder."""

    tree: Mapping[str, SourceFile]
    by_folder: Mapping[str, Kustomization]

    def inputs_of(self, one: Kustomization) -> set[str]:
        """Return the files that a kustomization reads, those of the kustomizations that it uses included."""
        found, waiting = set[str](), [one]
        while waiting:
            each = waiting.pop()
            if each.file in found:
                continue
            found.add(each.file)
            found.update(path for path in each.paths if path in self.tree)
            waiting += (
                self.by_folder[path] for path in each.paths if path in self.by_folder
            )
        return found

    def roots(self, within: Callable[[str], bool]) -> list[Kustomization]:
        """Return those that no other one uses: they render what the others have."""
        several = {
            folder: kustomization
            for folder, kustomization in self.by_folder.items()
            if within(kustomization.file)
        }
        used = {
            path
            for folder, kustomization in several.items()
            for path in kustomization.paths
            if path != folder
        }
        return [
            kustomization
            for folder, kustomization in sorted(several.items())
            if folder not in used and not kustomization.is_component
        ]


def kustomizations_of(tree: Mapping[str, SourceFile]) -> Kustomizations:
    by_folder = {}
    for name, file in tree.items():
        if PurePosixPath(name).name in KUSTOMIZATIONS:
            one = Kustomization.parse(name, file.read(), tree)
            by_folder[one.folder] = one
    return Kustomizations(tree, by_folder)


def paths_in(data: Mapping[str, Any]) -> Iterator[str]:
    for key in (*_LISTS, *_PATCHES):
        entries = data.get(key)
        for entry in entries if isinstance(entries, list) else ():
            path = entry.get("path") if isinstance(entry, dict) else entry
            if isinstance(path, str) and "\n" not in path:
                yield path


class Source(Protocol):
    """What a program renders: a kustomization or a chart."""

    @property
    def file(self) -> str: ...

    def command(self, root: Path) -> list[str]:
        """Return the command that renders it below a root. Raise NotRenderedError."""


@dataclass
class Renderer:
    """Runs kustomize and helm; what is equal on both sides is rendered once."""

    rendered: dict[str, bytes | NotRenderedError] = field(default_factory=dict)

    def render(
        self,
        one: Source,
        inputs: Collection[SourceFile],
        root: Callable[[], Path],
    ) -> bytes:
        """Return the documents of a kustomization or a chart. Raise NotRenderedError."""
        parts = sorted(f"{file.name}\0{file.key}" for file in inputs)
        key = hashlib.sha256(
            "\n".join([one.file, *parts]).encode(errors="surrogateescape")
        ).hexdigest()
        if key not in self.rendered:
            try:
                folder = root()
                self.rendered[key] = build(folder, one.command(folder))
            except NotRenderedError as error:
                self.rendered[key] = error
        result = self.rendered[key]
        if isinstance(result, NotRenderedError):
            raise result
        return result


def command_for(root: Path, folder: str) -> list[str]:
    """Return the command that builds a folder below a root. Raise NotRenderedError."""
    program, kubectl = shutil.which(KUSTOMIZE), shutil.which("kubectl")
    if program is None and kubectl is None:
        raise NotRenderedError("neither kustomize nor kubectl is installed")
    if program:
        return [program, "build", str((root / folder).resolve())]
    return [str(kubectl), KUSTOMIZE, str((root / folder).resolve())]


def build(root: Path, command: Sequence[str]) -> bytes:
    """Return what kustomize or helm writes for files below a root. Raise NotRenderedError.

    A change under review says what the program reads: it gets no variable of this environment, thus no secret
    of the pipeline, no home folder with credentials, and a limited time.
    """
    program = Path(command[0]).name
    with TemporaryDirectory(prefix="fleetui-home-") as home:
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": home,
            "LANG": "C.UTF-8",
        }
        process = subprocess.Popen(  # noqa: S603 -- a program of the user's PATH, without a shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=RENDER_SECONDS)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)  # with what it started itself
            process.communicate()
            raise NotRenderedError(
                f"{program} took longer than {RENDER_SECONDS} seconds"
            ) from error
    if process.returncode:
        message = (
            errors.decode(errors="replace").strip().replace(f"{root.resolve()}/", "")
        )
        raise NotRenderedError(f"{program} {command[1]}: {message[:_LONGEST_REASON]}")
    return output
