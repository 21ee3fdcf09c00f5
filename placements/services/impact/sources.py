"""Manifests of a git revision or a folder: the clusters and placements of one side of a comparison."""

import hashlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from clusters.fleet import Fleet
from clusters.manifest import MemberClusterManifest, newest_heartbeat_of, parse_member
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.kinds import (
    ASSERTION_KIND,
    ASSERTION_VERSION,
    MEMBER_KIND,
    NAMESPACED_PLACEMENT_KIND,
    PLACEMENT_KIND,
)
from fleetui.apimachinery.yaml import Document, attach_lines, items_of, kind_of, lines_of, load_documents
from placements.manifests.assertions import PlacementAssertion, parse_placement_assertion
from placements.manifests.placement import ClusterResourcePlacement, is_ocm_placement, parse_placement

Value = TypeVar("Value")
_ENDINGS = (".yaml", ".yml", ".json")
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class UnreadableSourceError(ValueError):
    """A revision or folder cannot be read, or documents in it are invalid; one line for each error."""


@dataclass(frozen=True, slots=True)
class WrittenPlacement:
    """A placement of one side: its manifest, and where it is written."""

    manifest: ClusterResourcePlacement
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """What is in one file: its documents of the kinds that matter, or its errors."""

    members: tuple[MemberClusterManifest, ...] = ()
    placements: tuple[tuple[ClusterResourcePlacement, int], ...] = ()
    assertions: tuple[PlacementAssertion, ...] = ()
    faults: tuple[FieldError, ...] = ()


@dataclass
class BlobReader:
    """Reads files; each content is parsed once, whatever the number of files and sides that have it."""

    parsed: dict[str, ParsedFile] = field(default_factory=dict)

    def parse(self, key: str, read: Callable[[], bytes]) -> ParsedFile:
        if key not in self.parsed:
            self.parsed[key] = _parse(read())
        return self.parsed[key]


@dataclass(frozen=True, slots=True)
class DiffSide:
    """The clusters and placements of one revision."""

    members: tuple[MemberClusterManifest, ...]
    placements: dict[tuple[str, str], WrittenPlacement]
    assertions: tuple[PlacementAssertion, ...] = ()

    def fleet(self) -> Fleet:
        moment = newest_heartbeat_of(self.members) or _LONG_AGO
        return Fleet(one.cluster(now=moment, strict_health=False) for one in self.members)


def read_side(source: str, paths: Sequence[str], reader: BlobReader) -> DiffSide:
    """Return what a folder or a git revision has below the paths. Raise UnreadableSourceError."""
    is_folder = Path(source).is_dir()
    files = _files_of_folder(Path(source), paths) if is_folder else _files_of_revision(source, paths)
    members: dict[str, MemberClusterManifest] = {}
    placements: dict[tuple[str, str], WrittenPlacement] = {}
    assertions: list[PlacementAssertion] = []
    faults: list[str] = []
    for name, key, read in files:
        blob = reader.parse(key, read)
        faults += [f"{source}: {name}: {fault}" for fault in blob.faults]
        for member in blob.members:
            if member.metadata.name in members:
                faults.append(f"{source}: {name}: MemberCluster {member.metadata.name} is there twice")
            members[member.metadata.name] = member
        assertions += blob.assertions
        for manifest, line in blob.placements:
            identity = (manifest.kind, manifest.full_name)
            if identity in placements:
                faults.append(f"{source}: {name}: {manifest.kind} {manifest.full_name} is there twice")
            placements[identity] = WrittenPlacement(manifest, name, line)
    if faults:
        raise UnreadableSourceError("\n".join(faults))
    return DiffSide(tuple(members.values()), placements, tuple(assertions))


def read_files(names: Sequence[str]) -> DiffSide:
    """Return what files and folders have. Raise UnreadableSourceError."""
    missing = [one for one in names if not Path(one).exists()]
    if missing:
        raise UnreadableSourceError(f"{missing[0]}: no such file or folder")
    paths = [Path(one).resolve() for one in names]
    root = Path.cwd() if all(one.is_relative_to(Path.cwd()) for one in paths) else Path("/")
    return read_side(str(root), [str(one) for one in paths], BlobReader())


_File = tuple[str, str, Callable[[], bytes]]


def _files_of_folder(root: Path, paths: Sequence[str]) -> Iterator[_File]:
    tops = [root / path for path in paths] or [root]
    found = {each for top in tops for each in ([top] if top.is_file() else top.rglob("*"))}
    for path in sorted(found):
        if path.suffix in _ENDINGS and path.is_file() and ".git" not in path.parts:
            content = path.read_bytes()
            yield (
                path.relative_to(root).as_posix(),
                hashlib.sha256(content).hexdigest(),
                partial(bytes, content),
            )


def _files_of_revision(revision: str, paths: Sequence[str]) -> Iterator[_File]:
    if revision.startswith("-"):
        raise UnreadableSourceError(f"{revision}: neither a folder nor a git revision")
    listed = git("ls-tree", "-r", "-z", "--full-tree", f"{revision}^{{tree}}", "--", *paths)
    for entry in listed.decode(errors="surrogateescape").split("\0"):
        head, _, name = entry.partition("\t")
        if name.endswith(_ENDINGS) and " blob " in head:
            key = head.split()[2]
            yield name, key, partial(git, "cat-file", "blob", key)


def git(*arguments: str) -> bytes:
    """Run git in the current folder. Raise UnreadableSourceError."""
    try:
        command = ["git", *arguments]  # revisions and paths come after options, and never start with a dash
        return subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603
    except FileNotFoundError as error:
        raise UnreadableSourceError("git is not installed, and BASE and HEAD are no folders") from error
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode(errors="replace").strip()
        raise UnreadableSourceError(f"git {arguments[0]}: {message}") from error


def _parse(content: bytes) -> ParsedFile:
    """Parse a file; a document of another kind, or without one, is ignored."""
    members, placements, assertions = [], [], []
    named, faults = list[tuple[Document, str]](), list[tuple[Document, FieldError]]()
    try:
        documents = [item for one in load_documents(content) for item in items_of(one)]
    except InvalidManifest as found:
        return ParsedFile(faults=found.faults)
    for one in documents:
        kind = kind_of(one.data)
        try:
            if kind == MEMBER_KIND:
                members.append(parse_member(one.data))
            elif kind in (PLACEMENT_KIND, NAMESPACED_PLACEMENT_KIND) or is_ocm_placement(one.data):
                placements.append(parse_placement(one.data))
                named.append((one, "metadata.name"))
            elif kind == ASSERTION_KIND and one.data.get("apiVersion") == ASSERTION_VERSION:
                assertions.append(parse_placement_assertion(one.data))
        except InvalidManifest as found:
            faults += [(one, fault) for fault in found.faults]
    placed = tuple((one, line or 1) for one, line in zip(placements, lines_of(named), strict=True))
    return ParsedFile(tuple(members), placed, tuple(assertions), tuple(attach_lines(faults)))
