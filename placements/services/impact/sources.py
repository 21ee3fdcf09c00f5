"""Manifests of a git revision or a folder: the clusters and placements of one side of a comparison."""

import hashlib
import io
import re
import subprocess
import tarfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path, PurePath, PurePosixPath
from posixpath import normpath
from tempfile import TemporaryDirectory
from typing import Any

from clusters.fleet import Fleet
from clusters.manifest import MemberClusterManifest, newest_heartbeat_of, parse_member
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.kinds import (
    CLUSTER_OVERRIDE_KIND,
    MEMBER_KIND,
    NAMESPACED_PLACEMENT_KIND,
    NAMESPACED_RUN_KIND,
    NAMESPACED_STRATEGY_KIND,
    OCM_GROUP,
    OVERRIDE_KIND,
    PLACEMENT_KIND,
    STAGED_RUN_KIND,
    STAGED_STRATEGY_KIND,
)
from fleetui.apimachinery.words import full_name
from fleetui.apimachinery.yaml import (
    Document,
    attach_lines,
    items_of,
    kind_of,
    lines_of,
    load_documents,
)
from fleetui.errors import FleetError
from placements.engine.checks.file import NAME
from placements.manifests.override import (
    ClusterResourceOverride,
    ResourceOverride,
    parse_cluster_override,
    parse_override,
)
from placements.manifests.placement import (
    ClusterResourcePlacement,
    is_ocm_placement,
    parse_placement,
)
from placements.manifests.staged_update import (
    ClusterStagedUpdateRun,
    ClusterStagedUpdateStrategy,
    parse_staged_run,
    parse_staged_strategy,
)
from placements.services.impact.helm import chart_folders, chart_of, charts_of
from placements.services.impact.kustomize import (
    KUSTOMIZATIONS,
    NotRenderedError,
    Render,
    Renderer,
    SourceFile,
    build,
    command_for,
    kustomizations_of,
)

GROUPS = ("kubernetes-fleet.io", "fleetui.io", OCM_GROUP)
_ENDINGS = (".yaml", ".yml", ".json")
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class UnreadableSourceError(FleetError, ValueError):
    """A revision or folder cannot be read, or documents in it are invalid; one line for each error."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    problem_type = "unreadable-source"


@dataclass(frozen=True, slots=True)
class WrittenPlacement:
    """A placement of one side: its manifest, where it is written, and as it is written."""

    manifest: ClusterResourcePlacement
    file: str
    line: int
    document: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WrittenOverride:
    """An override of one side: its manifest, and where it is written."""

    manifest: ClusterResourceOverride | ResourceOverride
    file: str
    line: int


@dataclass(slots=True)
class ParsedFile:
    """What is in one file: its documents of the kinds that matter, or its errors.

    `lines` are those of placements, `override_lines` those of overrides.
    """

    members: list[MemberClusterManifest] = field(default_factory=list)
    member_documents: list[Document] = field(default_factory=list)
    placements: list[ClusterResourcePlacement] = field(default_factory=list)
    lines: Sequence[int] = ()
    placement_documents: Sequence[dict[str, Any]] = ()
    overrides: list[ClusterResourceOverride | ResourceOverride] = field(
        default_factory=list
    )
    override_lines: Sequence[int] = ()
    strategies: list[ClusterStagedUpdateStrategy] = field(default_factory=list)
    runs: list[ClusterStagedUpdateRun] = field(default_factory=list)
    errors: Sequence[FieldError] = ()
    notes: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SourceNote:
    """What was not read and may matter, with its place; `is_incomplete`: the result lacks placements."""

    file: str
    line: int
    message: str
    is_incomplete: bool = False


@dataclass
class BlobReader:
    """Reads files; each content is parsed once, whatever the number of files and sides that have it."""

    parsed: dict[str, ParsedFile] = field(default_factory=dict)
    renderer: Renderer = field(default_factory=Renderer)
    ours: dict[str, bool] = field(default_factory=dict)

    def parse(self, file: SourceFile) -> ParsedFile:
        if file.key not in self.parsed:
            self.parsed[file.key] = _parse(file.read())
        return self.parsed[file.key]

    def may_be_ours(self, file: SourceFile) -> bool:
        if file.key not in self.ours:
            self.ours[file.key] = _may_be_ours(file.read())
        return self.ours[file.key]


@dataclass(frozen=True, slots=True)
class DiffSide:
    """The clusters and placements of one revision.

    `waits` has the timed waits of all stages, by the full name of a placement with a staged update run,
    `member_files` the file of each cluster, and its document if that is in the file as it is written.
    """

    members: tuple[MemberClusterManifest, ...]
    placements: dict[tuple[str, str], WrittenPlacement]
    member_files: dict[str, tuple[str, Document | None]] = field(default_factory=dict)
    waits: dict[str, timedelta] = field(default_factory=dict)
    overrides: tuple[WrittenOverride, ...] = ()
    files: tuple[str, ...] = ()
    notes: tuple[SourceNote, ...] = ()
    values: tuple[str, ...] = ()

    def fleet(self) -> Fleet:
        moment = newest_heartbeat_of(self.members) or _LONG_AGO
        return Fleet(
            member.cluster(now=moment, strict_health=False) for member in self.members
        )


def read_side(
    source: str,
    paths: Sequence[str],
    reader: BlobReader,
    *,
    render: Render | None = Render.AUTO,
    values: Sequence[str] = (),
) -> DiffSide:
    """Return what a folder or a git revision has below the paths. Raise UnreadableSourceError.

    With `kustomize` each path is a kustomization, and what it renders is read. With `auto` the kustomizations
    and Helm charts below the paths that have documents of ours are rendered, and the files that they read do
    not count on their own; one that cannot be rendered, as any with `none`, is a note. None reads what is
    written, and an invalid part of a kustomization, such as a patch, is passed over. `values` are values
    files of Helm in the tree; one that this side does not have is passed over.
    """
    side = _Collector(source)
    if render is Render.KUSTOMIZE:
        for file in rendered_paths(source, paths):
            side.add(file, reader, is_rendered=True)
        return side.result()
    with ExitStack() as stack:
        tree = _tree(source, paths and [*paths, *values], stack)
        below = partial(is_below, [relative_path(source, path) for path in paths])
        kustomizations = kustomizations_of(tree)
        rendered, as_written = set[str](), set[str]()
        checkout = cache(partial(_checkout, source, stack))
        side.values = list(filter(tree.__contains__, values))
        sources = charts_of(tree, side.values, below)
        roots = kustomizations.roots(below)
        sources.update(zip(roots, map(kustomizations.inputs_of, roots), strict=True))
        if render is None:
            parts = (
                kustomization.paths
                for kustomization in kustomizations.by_folder.values()
            )
            as_written.update(*parts, *sources.values())
            sources = {}
        for root, inputs in sources.items():
            if not any(reader.may_be_ours(tree[name]) for name in inputs):
                continue
            try:
                if render is Render.NONE:
                    raise NotRenderedError("--render none")
                content = reader.renderer.render(
                    root, [tree[name] for name in inputs], checkout
                )
            except NotRenderedError as why:
                as_written |= inputs
                message = f"not rendered: {why}. The result is incomplete."
                side.notes.append(SourceNote(root.file, 1, message, is_incomplete=True))
                continue
            rendered |= inputs
            side.add(_content(root.file, content), reader, is_rendered=True)
        for name, file in tree.items():
            if below(name) and name not in rendered and name.endswith(_ENDINGS):
                side.add(file, reader, is_part=name in as_written)
    return side.result()


class _Collector:
    """Collects what the files of one side have."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.members: dict[str, MemberClusterManifest] = {}
        self.member_files: dict[str, tuple[str, Document | None]] = {}
        self.placements: list[tuple[WrittenPlacement, bool]] = []
        self.overrides: list[WrittenOverride] = []
        self.blobs: dict[str, ParsedFile] = {}
        self.errors: list[str] = []
        self.notes: list[SourceNote] = []
        self.values: list[str] = []

    def add(
        self,
        file: SourceFile,
        reader: BlobReader,
        *,
        is_rendered: bool = False,
        is_part: bool = False,
    ) -> None:
        """Add a file; what is invalid in a part of a kustomization, such as a patch, is no error."""
        name = file.name
        blob = self.blobs[name] = reader.parse(file)
        self.notes += (SourceNote(name, line, message) for line, message in blob.notes)
        if not is_part:
            self.errors += (f"{self.source}: {name}: {error}" for error in blob.errors)
        for member, document in zip(blob.members, blob.member_documents, strict=True):
            cluster = member.metadata.name
            # Kustomizations of several environments may have the same clusters.
            if cluster in self.members and not (
                is_rendered and self.members[cluster] == member
            ):
                self.errors.append(
                    f"{self.source}: {name}: MemberCluster {cluster} is there twice"
                )
            self.members[cluster] = member
            self.member_files[cluster] = name, None if is_rendered else document
        for manifest, line, data in zip(
            blob.placements, blob.lines, blob.placement_documents, strict=True
        ):
            place = 1 if is_rendered else line
            written = WrittenPlacement(manifest, name, place, data)
            self.placements.append((written, is_rendered))
        for override, line in zip(blob.overrides, blob.override_lines, strict=True):
            self.overrides.append(
                WrittenOverride(override, name, 1 if is_rendered else line)
            )

    def result(self) -> DiffSide:
        """Return the side. Raise UnreadableSourceError.

        A placement that several kustomizations render, such as one for each environment, has the folder of
        each with its name.
        """
        placements: dict[tuple[str, str], WrittenPlacement] = {}
        counts = Counter(
            (placement.manifest.kind, placement.manifest.full_name)
            for placement, _ in self.placements
        )
        for placement, is_rendered in self.placements:
            kind, name = placement.manifest.kind, placement.manifest.full_name
            if is_rendered and counts[kind, name] > 1:
                name = f"{name} ({PurePosixPath(placement.file).parent})"
            if (kind, name) in placements:
                self.errors.append(
                    f"{self.source}: {placement.file}: {kind} {name} is there twice"
                )
            placements[kind, name] = placement
        if self.errors:
            raise UnreadableSourceError("\n".join(self.errors))
        return DiffSide(
            tuple(self.members.values()),
            placements,
            self.member_files,
            _waits(self.blobs.values()),
            tuple(self.overrides),
            tuple(self.blobs),
            tuple(self.notes),
            tuple(self.values),
        )


def _waits(blobs: Collection[ParsedFile]) -> dict[str, timedelta]:
    """Return the timed waits of all stages, by the full name of a placement with a staged update run."""
    strategies = {
        strategy.full_name: strategy.spec.stages
        for blob in blobs
        for strategy in blob.strategies
    }
    waits = {}
    for run in (run for blob in blobs for run in blob.runs):
        stages = strategies.get(
            full_name(run.namespace, run.spec.staged_rollout_strategy_name), ()
        )
        name = full_name(run.namespace, run.spec.placement_name)
        waits[name] = sum((stage.wait for stage in stages), timedelta())
    return waits


def read_files(names: Sequence[str]) -> DiffSide:
    """Return what files and folders have. Raise UnreadableSourceError."""
    missing = [name for name in names if not Path(name).exists()]
    if missing:
        raise UnreadableSourceError(f"{missing[0]}: no such file or folder")
    paths = [Path(name).resolve() for name in names]
    root = (
        Path.cwd()
        if all(path.is_relative_to(Path.cwd()) for path in paths)
        else Path("/")
    )
    return read_side(
        str(root), [str(path) for path in paths], BlobReader(), render=None
    )


def read_checks_file(source: str) -> bytes | None:
    """Return `.fleetui.yaml` at the root of a folder or a git revision; None where it has none."""
    if Path(source).is_dir():
        path = Path(source) / NAME
        return path.read_bytes() if path.is_file() else None
    names = (
        git("ls-tree", "--full-tree", "--name-only", f"{source}^{{tree}}")
        .decode()
        .splitlines()
    )
    return git("show", f"{source}:{NAME}") if NAME in names else None


def relative_path(source: str, path: str) -> str:
    """Return a path below the root of a side, as the names of its files are written."""
    given = PurePosixPath(path)
    return normpath(given.relative_to(source) if given.is_absolute() else given)


def is_below(paths: Sequence[str], name: str) -> bool:
    return not paths or any(
        path == "." or name == path or name.startswith(f"{path}/") for path in paths
    )


def _tree(source: str, paths: Sequence[str], stack: ExitStack) -> dict[str, SourceFile]:
    """Return the files by name: of a revision all of them, of a folder those below the paths.

    A kustomization in a folder around the paths is there as well.
    """
    is_folder = Path(source).is_dir()
    files = (
        _files_of_folder(source, paths)
        if is_folder
        else _files_of_revision(source, stack)
    )
    return {file.name: file for file in files}


def _files_of_folder(source: str, paths: Sequence[str]) -> Iterator[SourceFile]:
    root = Path(source)
    tops = [root / path for path in paths] or [root]
    candidates = {
        path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))
    }
    around = {
        folder for top in tops for folder in top.parents if folder.is_relative_to(root)
    }
    candidates |= {folder / name for folder in around for name in KUSTOMIZATIONS}
    charts = chart_folders([str(path) for path in candidates])
    for path in sorted(candidates):
        if _is_read(path, charts) and path.is_file() and ".git" not in path.parts:
            yield _content(path.relative_to(root).as_posix(), path.read_bytes())


def _is_read(path: PurePath, charts: Collection[str]) -> bool:
    """Return whether a file counts: of a chart all do, as templates may include any."""
    is_manifest = path.suffix in _ENDINGS or path.name in KUSTOMIZATIONS
    return is_manifest or bool(chart_of(str(path), charts))


def _content(name: str, content: bytes) -> SourceFile:
    return SourceFile(
        name, hashlib.sha256(content).hexdigest(), partial(bytes, content)
    )


def _files_of_revision(source: str, stack: ExitStack) -> Iterator[SourceFile]:
    _refuse_option(source)
    listing = git("ls-tree", "-r", "-z", "--full-tree", f"{source}^{{tree}}")
    entries = [
        part.partition("\t")
        for part in listing.decode(errors="surrogateescape").split("\0")
    ]
    charts = chart_folders([name for _, _, name in entries])
    command, pipe = ["git", "cat-file", "--batch"], subprocess.PIPE
    blobs = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe))  # noqa: S603 -- for all files
    for head, _, name in entries:
        if _is_read(PurePosixPath(name), charts) and " blob " in head:
            key = head.split()[2]
            yield SourceFile(name, key, partial(_blob, blobs, key))


def _blob(blobs: subprocess.Popen[bytes], key: str) -> bytes:
    if blobs.stdin is None or blobs.stdout is None:
        raise ValueError("the process has no pipes")
    blobs.stdin.write(f"{key}\n".encode())
    blobs.stdin.flush()
    size = int(blobs.stdout.readline().split()[-1])
    return blobs.stdout.read(size + 1)[:size]


def rendered_paths(source: str, paths: Sequence[str]) -> Iterator[SourceFile]:
    """Yield the output of kustomize for each path; one that this side does not have is left out."""
    with ExitStack() as stack:
        root = _checkout(source, stack)
        for path in paths or ["."]:
            folder = root / path
            if folder.is_dir():
                name = next(
                    (
                        kustomization
                        for kustomization in KUSTOMIZATIONS
                        if (folder / kustomization).is_file()
                    ),
                    KUSTOMIZATIONS[0],
                )
                file = (folder / name).relative_to(root).as_posix()
                try:
                    yield _content(file, build(root, command_for(root, path)))
                except NotRenderedError as error:
                    raise UnreadableSourceError(
                        f"--render kustomize: {path}: {error}"
                    ) from error


def _checkout(source: str, stack: ExitStack) -> Path:
    """Return a folder with the files of a side: for a revision one that the stack removes."""
    if Path(source).is_dir():
        return Path(source)
    _refuse_option(source)
    root = Path(stack.enter_context(TemporaryDirectory(prefix="fleetui-")))
    with tarfile.open(
        fileobj=io.BytesIO(git("archive", "--format=tar", source))
    ) as archive:
        # Python has filters from 3.11.4 on; git stores no path outside, so only links can lead there.
        files = [entry for entry in archive if not (entry.issym() or entry.islnk())]
        has_filters = hasattr(tarfile, "data_filter")
        safe: dict[str, Any] = {"filter": "data"} if has_filters else {"members": files}
        archive.extractall(root, **safe)  # noqa: S202 -- see above
    return root


def _refuse_option(revision: str) -> None:
    if revision.startswith("-"):
        raise UnreadableSourceError(f"{revision}: neither a folder nor a git revision")


def git(*arguments: str) -> bytes:
    """Run git in the current folder. Raise UnreadableSourceError; paths are last and start with no dash."""
    try:
        return subprocess.run(  # noqa: S603
            ["git", *arguments],  # noqa: S607
            capture_output=True,
            check=True,
        ).stdout
    except FileNotFoundError as error:
        raise UnreadableSourceError(
            "git is not installed, and BASE and HEAD are no folders"
        ) from error
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode(errors="replace").strip()
        raise UnreadableSourceError(f"git {arguments[0]}: {message}") from error


_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    MEMBER_KIND: ("members", parse_member),
    PLACEMENT_KIND: ("placements", parse_placement),
    NAMESPACED_PLACEMENT_KIND: ("placements", parse_placement),
    CLUSTER_OVERRIDE_KIND: ("overrides", parse_cluster_override),
    OVERRIDE_KIND: ("overrides", parse_override),
    STAGED_STRATEGY_KIND: ("strategies", parse_staged_strategy),
    NAMESPACED_STRATEGY_KIND: ("strategies", parse_staged_strategy),
    STAGED_RUN_KIND: ("runs", parse_staged_run),
    NAMESPACED_RUN_KIND: ("runs", parse_staged_run),
}


_NAMES = re.compile("|".join(map(re.escape, (*_KINDS, *GROUPS))).encode())
_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)


def _may_be_ours(content: bytes) -> bool:
    """Return whether a text names a kind or a group of ours: other files need not be readable."""
    return _NAMES.search(content) is not None


def _parse(content: bytes) -> ParsedFile:
    """Parse a file; a document of another kind, or without one, is ignored."""
    file, errors = ParsedFile(), list[tuple[Document, FieldError]]()
    named: dict[str, list[tuple[Document, str]]] = {"placements": [], "overrides": []}
    if not _may_be_ours(content):
        return file
    for document in _documents(content, file):
        kind = (
            PLACEMENT_KIND
            if is_ocm_placement(document.data)
            else kind_of(document.data)
        )
        if kind not in _KINDS:
            continue
        noun, parse = _KINDS[kind]
        try:
            getattr(file, noun).append(parse(document.data))
        except InvalidManifest as invalid:
            if "{{" in str(document.data):
                [line] = lines_of([(document, "metadata.name")])
                file.notes.append(
                    (line or 1, f"not read: {kind} is a template: {invalid.errors[0]}")
                )
                continue
            errors += [(document, error) for error in invalid.errors]
        else:
            if noun in named:
                named[noun].append((document, "metadata.name"))
            file.member_documents += [document] if noun == "members" else []
    file.placement_documents = [document.data for document, _ in named["placements"]]
    file.lines = [line or 1 for line in lines_of(named["placements"])]
    file.override_lines = [line or 1 for line in lines_of(named["overrides"])]
    file.errors = attach_lines(errors)
    return file


def _documents(content: bytes, file: ParsedFile) -> list[Document]:
    """Return the documents of a text; of one that cannot be read as a whole, those that can.

    What names none of our kinds is passed over, the rest is a note.
    """
    try:
        return [
            item for document in load_documents(content) for item in items_of(document)
        ]
    except InvalidManifest:
        text = content.decode(errors="replace")
    documents: list[Document] = []
    starts = [0, *(found.end() for found in _SEPARATOR.finditer(text)), len(text)]
    for start, end in pairwise(starts):
        part = text[start:end].removesuffix("---")
        if not _may_be_ours(part.encode()):
            continue
        before = text.count("\n", 0, start)
        try:
            # Empty lines before it keep the numbers of its lines.
            documents += [
                item
                for document in load_documents("\n" * before + part)
                for item in items_of(document)
            ]
        except InvalidManifest as invalid:
            error = invalid.errors[0]
            file.notes.append((error.line or before + 1, f"not read: {error.message}"))
    return documents
