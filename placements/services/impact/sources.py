"""Manifests of a git revision or a folder: the clusters and placements of one side of a comparison."""

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clusters.fleet import Fleet
from clusters.manifest import MemberClusterManifest, newest_heartbeat_of, parse_member
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.kinds import (
    ASSERTION_KIND,
    ASSERTION_VERSION,
    MEMBER_KIND,
    NAMESPACED_PLACEMENT_KIND,
    NAMESPACED_RUN_KIND,
    NAMESPACED_STRATEGY_KIND,
    PLACEMENT_KIND,
    STAGED_RUN_KIND,
    STAGED_STRATEGY_KIND,
)
from fleetui.apimachinery.metadata import full_name
from fleetui.apimachinery.yaml import Document, attach_lines, items_of, kind_of, lines_of, load_documents
from placements.manifests.assertions import PlacementAssertion, parse_placement_assertion
from placements.manifests.placement import ClusterResourcePlacement, is_ocm_placement, parse_placement
from placements.manifests.staged_update import (
    ClusterStagedUpdateRun,
    ClusterStagedUpdateStrategy,
    parse_staged_run,
    parse_staged_strategy,
)

CONFIG = ".fleetui.yaml"
_ENDINGS = (".yaml", ".yml", ".json")
_KUSTOMIZE, _KUSTOMIZATIONS = "kustomize", ("kustomization.yaml", "kustomization.yml", "Kustomization")
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class UnreadableSourceError(ValueError):
    """A revision or folder cannot be read, or documents in it are invalid; one line for each error."""


@dataclass(frozen=True, slots=True)
class WrittenPlacement:
    """A placement of one side: its manifest, and where it is written."""

    manifest: ClusterResourcePlacement
    file: str
    line: int


@dataclass(slots=True)
class ParsedFile:
    """What is in one file: its documents of the kinds that matter, or its errors; `lines` of placements."""

    members: list[MemberClusterManifest] = field(default_factory=list)
    member_documents: list[Document] = field(default_factory=list)
    placements: list[ClusterResourcePlacement] = field(default_factory=list)
    lines: Sequence[int] = ()
    assertions: list[PlacementAssertion] = field(default_factory=list)
    strategies: list[ClusterStagedUpdateStrategy] = field(default_factory=list)
    runs: list[ClusterStagedUpdateRun] = field(default_factory=list)
    errors: Sequence[FieldError] = ()


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
    """The clusters and placements of one revision.

    `waits` has the timed waits of all stages, by the full name of a placement with a staged update run,
    `member_files` the file of each cluster, and its document if that is in the file as it is written.
    """

    members: tuple[MemberClusterManifest, ...]
    placements: dict[tuple[str, str], WrittenPlacement]
    assertions: tuple[PlacementAssertion, ...] = ()
    member_files: dict[str, tuple[str, Document | None]] = field(default_factory=dict)
    waits: dict[str, timedelta] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def fleet(self) -> Fleet:
        moment = newest_heartbeat_of(self.members) or _LONG_AGO
        return Fleet(one.cluster(now=moment, strict_health=False) for one in self.members)


def read_side(
    source: str, paths: Sequence[str], reader: BlobReader, *, is_rendered: bool = False
) -> DiffSide:
    """Return what a folder or a git revision has below the paths. Raise UnreadableSourceError.

    With `is_rendered` each path is a kustomization, and the output of kustomize is read.
    """
    files = _rendered if is_rendered else _files_of_folder if Path(source).is_dir() else _files_of_revision
    members: dict[str, MemberClusterManifest] = {}
    member_files: dict[str, tuple[str, Document | None]] = {}
    placements: dict[tuple[str, str], WrittenPlacement] = {}
    blobs: dict[str, ParsedFile] = {}
    errors: list[str] = []
    for name, key, read in files(source, paths):
        blob = blobs[name] = reader.parse(key, read)
        errors += [f"{source}: {name}: {error}" for error in blob.errors]
        for member, document in zip(blob.members, blob.member_documents, strict=True):
            if member.metadata.name in members:
                errors.append(f"{source}: {name}: MemberCluster {member.metadata.name} is there twice")
            members[member.metadata.name] = member
            member_files[member.metadata.name] = name, None if is_rendered else document
        for manifest, line in zip(blob.placements, blob.lines, strict=True):
            identity = (manifest.kind, manifest.full_name)
            if identity in placements:
                errors.append(f"{source}: {name}: {manifest.kind} {manifest.full_name} is there twice")
            placements[identity] = WrittenPlacement(manifest, name, 1 if is_rendered else line)
    if errors:
        raise UnreadableSourceError("\n".join(errors))
    return DiffSide(
        tuple(members.values()),
        placements,
        tuple(one for blob in blobs.values() for one in blob.assertions),
        member_files,
        _waits(blobs.values()),
        tuple(blobs),
    )


def _waits(blobs: Collection[ParsedFile]) -> dict[str, timedelta]:
    """Return the timed waits of all stages, by the full name of a placement with a staged update run."""
    strategies = {one.full_name: one.spec.stages for blob in blobs for one in blob.strategies}
    waits = {}
    for run in (one for blob in blobs for one in blob.runs):
        stages = strategies.get(full_name(run.namespace, run.spec.staged_rollout_strategy_name), ())
        name = full_name(run.namespace, run.spec.placement_name)
        waits[name] = sum((one.wait for one in stages), timedelta())
    return waits


def read_files(names: Sequence[str]) -> DiffSide:
    """Return what files and folders have. Raise UnreadableSourceError."""
    missing = [one for one in names if not Path(one).exists()]
    if missing:
        raise UnreadableSourceError(f"{missing[0]}: no such file or folder")
    paths = [Path(one).resolve() for one in names]
    root = Path.cwd() if all(one.is_relative_to(Path.cwd()) for one in paths) else Path("/")
    return read_side(str(root), [str(one) for one in paths], BlobReader())


def read_config(source: str) -> bytes | None:
    """Return `.fleetui.yaml` at the root of a folder or a git revision; None where it has none."""
    if Path(source).is_dir():
        path = Path(source) / CONFIG
        return path.read_bytes() if path.is_file() else None
    names = git("ls-tree", "--full-tree", "--name-only", f"{source}^{{tree}}").decode().splitlines()
    return git("show", f"{source}:{CONFIG}") if CONFIG in names else None


_File = tuple[str, str, Callable[[], bytes]]


def _files_of_folder(source: str, paths: Sequence[str]) -> Iterator[_File]:
    root = Path(source)
    tops = [root / path for path in paths] or [root]
    candidates = {each for top in tops for each in ([top] if top.is_file() else top.rglob("*"))}
    for path in sorted(candidates):
        if path.suffix in _ENDINGS and path.is_file() and ".git" not in path.parts:
            yield _content(path.relative_to(root).as_posix(), path.read_bytes())


def _content(name: str, content: bytes) -> _File:
    return name, hashlib.sha256(content).hexdigest(), partial(bytes, content)


def _files_of_revision(source: str, paths: Sequence[str]) -> Iterator[_File]:
    _refuse_option(source)
    listing = git("ls-tree", "-r", "-z", "--full-tree", f"{source}^{{tree}}", "--", *paths)
    command, pipe = ["git", "cat-file", "--batch"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as blobs:  # noqa: S603 -- one for all files
        for entry in listing.decode(errors="surrogateescape").split("\0"):
            head, _, name = entry.partition("\t")
            if name.endswith(_ENDINGS) and " blob " in head:
                key = head.split()[2]
                yield name, key, partial(_blob, blobs, key)


def _blob(blobs: subprocess.Popen[bytes], key: str) -> bytes:
    if blobs.stdin is None or blobs.stdout is None:
        raise ValueError("the process has no pipes")
    blobs.stdin.write(f"{key}\n".encode())
    blobs.stdin.flush()
    size = int(blobs.stdout.readline().split()[-1])
    return blobs.stdout.read(size + 1)[:size]


def _rendered(source: str, paths: Sequence[str]) -> Iterator[_File]:
    """Yield the output of kustomize for each path; one that this side does not have is left out."""
    root = Path(source)
    tops = paths or ["."]
    with ExitStack() as stack:
        if not root.is_dir():
            _refuse_option(source)
            root = Path(stack.enter_context(TemporaryDirectory(prefix="fleetui-")))
            with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", source))) as archive:
                # Python has filters from 3.11.4 on; git stores no path outside, so only links can lead there.
                files = [one for one in archive if not (one.issym() or one.islnk())]
                has_filters = hasattr(tarfile, "data_filter")
                safe: dict[str, Any] = {"filter": "data"} if has_filters else {"members": files}
                archive.extractall(root, **safe)  # noqa: S202 -- see above
        for path in tops:
            folder = root / path
            if folder.is_dir():
                name = next((one for one in _KUSTOMIZATIONS if (folder / one).is_file()), _KUSTOMIZATIONS[0])
                file = (folder / name).relative_to(root).as_posix()
                yield _content(file, run_tool(_KUSTOMIZE, "build", str(folder)))


def _refuse_option(revision: str) -> None:
    if revision.startswith("-"):
        raise UnreadableSourceError(f"{revision}: neither a folder nor a git revision")


def git(*arguments: str) -> bytes:
    """Run git in the current folder. Raise UnreadableSourceError."""
    return run_tool("git", *arguments)


def run_tool(*command: str) -> bytes:
    """Return what a program writes. Raise UnreadableSourceError; paths are last and start with no dash."""
    name, verb = command[:2]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603
    except FileNotFoundError as error:
        why = "BASE and HEAD are no folders" if name == "git" else f"--render needs {name}"
        raise UnreadableSourceError(f"{name} is not installed, and {why}") from error
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode(errors="replace").strip()
        raise UnreadableSourceError(f"{name} {verb}: {message}") from error


_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    MEMBER_KIND: ("members", parse_member),
    PLACEMENT_KIND: ("placements", parse_placement),
    NAMESPACED_PLACEMENT_KIND: ("placements", parse_placement),
    ASSERTION_KIND: ("assertions", parse_placement_assertion),
    STAGED_STRATEGY_KIND: ("strategies", parse_staged_strategy),
    NAMESPACED_STRATEGY_KIND: ("strategies", parse_staged_strategy),
    STAGED_RUN_KIND: ("runs", parse_staged_run),
    NAMESPACED_RUN_KIND: ("runs", parse_staged_run),
}


def _parse(content: bytes) -> ParsedFile:
    """Parse a file; a document of another kind, or without one, is ignored."""
    file, named, errors = ParsedFile(), list[tuple[Document, str]](), list[tuple[Document, FieldError]]()
    try:
        documents = [item for one in load_documents(content) for item in items_of(one)]
    except InvalidManifest as invalid:
        return ParsedFile(errors=invalid.errors)
    for one in documents:
        kind = PLACEMENT_KIND if is_ocm_placement(one.data) else kind_of(one.data)
        is_other = kind == ASSERTION_KIND and one.data.get("apiVersion") != ASSERTION_VERSION
        if kind not in _KINDS or is_other:
            continue
        noun, parse = _KINDS[kind]
        try:
            getattr(file, noun).append(parse(one.data))
        except InvalidManifest as invalid:
            errors += [(one, error) for error in invalid.errors]
        else:
            named += [(one, "metadata.name")] if noun == "placements" else []
            file.member_documents += [one] if noun == "members" else []
    file.lines = [line or 1 for line in lines_of(named)]
    file.errors = attach_lines(errors)
    return file
