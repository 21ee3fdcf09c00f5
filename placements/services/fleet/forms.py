"""Conversion of text areas and rows of forms to plain data and back, without validation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from django.http import QueryDict

from clusters.filters import label_keys
from clusters.fleet import is_cordon
from fleetui.apimachinery.errors import FieldError, InvalidManifest, Keys, split_path
from fleetui.apimachinery.kinds import NAMESPACED_STRATEGY_KIND, STAGED_STRATEGY_KIND
from fleetui.apimachinery.model import omit_empty
from fleetui.apimachinery.yaml import Document, attach_lines, items_of, load_documents
from placements.manifests.staged_update import (
    ClusterStagedUpdateStrategy,
    parse_staged_strategy,
)

LABELS_PATH, TAINTS_PATH = "metadata.labels", "spec.taints"
_EMPTY_ROWS = 3


@dataclass(frozen=True, slots=True)
class TypedCluster:
    """Parsed labels and taints; `errors` are of invalid lines, `lines` are the line numbers of the others."""

    labels: dict[str, str]
    taints: list[dict[str, str]]
    errors: tuple[FieldError, ...]
    lines: Mapping[Keys, int]

    def at_line(self, error: FieldError) -> FieldError:
        keys = split_path(error.path)
        longest_first = (keys[:end] for end in range(len(keys), 0, -1))
        return replace(
            error,
            line=next(
                (self.lines[one] for one in longest_first if one in self.lines), None
            ),
        )


def read_cluster(labels: str, taints: str) -> TypedCluster:
    """Parse labels, `key=value` per line, and taints, `key=value:NoSchedule`, value and effect optional."""
    by_key: dict[str, str] = {}
    lines: dict[Keys, int] = {}
    plain_taints, errors = [], []
    for number, line in _numbered_lines(labels):
        key, is_there, value = (part.strip() for part in line.partition("="))
        if not is_there or not key:
            errors.append(
                FieldError(
                    LABELS_PATH,
                    "bad-format",
                    f"Invalid value: {line!r}",
                    "key=value",
                    number,
                )
            )
            continue
        if key in by_key:
            errors.append(
                FieldError(
                    LABELS_PATH, "duplicate", f"Duplicate key {key!r}", line=number
                )
            )
            continue
        by_key[key], lines[("metadata", "labels", key)] = value, number
    for place, (number, line) in enumerate(_numbered_lines(taints)):
        pair, _, effect = line.partition(":")
        name, _, text = (part.strip() for part in pair.partition("="))
        effect = effect.strip() or "NoSchedule"
        plain_taints.append({"key": name, **omit_empty(value=text), "effect": effect})
        lines[("spec", "taints", place)] = number
    return TypedCluster(by_key, plain_taints, tuple(errors), lines)


def _numbered_lines(text: str) -> Iterable[tuple[int, str]]:
    numbered = enumerate(text.splitlines(), start=1)
    return ((number, line.strip()) for number, line in numbered if line.strip())


def write_labels(labels: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in sorted(labels.items()))


def taints_without_cordon(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the taints that forms show: a cordon has actions of its own."""
    return [
        taint for taint in document["spec"].get("taints") or () if not is_cordon(taint)
    ]


def with_cordon(
    taints: Sequence[dict[str, str]], document: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Return typed taints with the cordon of a manifest, which no form removes."""
    saved = document["spec"].get("taints") or ()
    cordons = [one for one in saved if is_cordon(one) and one not in taints]
    return [*taints, *cordons]


def write_taints(taints: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(map(taint_text, taints))


def taint_text(written: Mapping[str, Any]) -> str:
    value = f"={written['value']}" if written.get("value") else ""
    return f"{written['key']}{value}:{written['effect']}"


def typed_rows(params: QueryDict) -> tuple[str, str]:
    """Return the rows as lines: labels `key=value`, taints `key=value:effect`. Empty rows are left out.

    Lines of the fields `labels` and `taints`, which scripts send, come first.
    """
    labels, taints = (
        params.get("labels", "").splitlines(),
        params.get("taints", "").splitlines(),
    )
    for key, value in zip(
        params.getlist("label_key"), params.getlist("label_value"), strict=False
    ):
        if key.strip() or value.strip():
            labels.append(f"{key.strip()}={value.strip()}")
    columns = [params.getlist(f"taint_{part}") for part in ("key", "value", "effect")]
    for key, value, effect in zip(*columns, strict=False):
        if key.strip() or value.strip():
            taints.append(
                f"{key.strip()}{'=' if value.strip() else ''}{value.strip()}:{effect.strip()}"
            )
    return "\n".join(labels), "\n".join(taints)


def row_context(labels: str, taints: str) -> dict[str, Any]:
    """Return the rows of lines, with empty ones for more, and the keys that clusters have."""
    label_rows = [
        line.partition("=")[::2] for line in labels.splitlines() if line.strip()
    ]
    taint_rows = []
    for line in taints.splitlines():
        written, _, effect = line.partition(":")
        key, _, value = written.partition("=")
        taint_rows.append((key.strip(), value.strip(), effect.strip()))
    return {
        "label_rows": label_rows + [("", "")] * _EMPTY_ROWS,
        "taint_rows": taint_rows + [("", "", "")] * _EMPTY_ROWS,
        "keys": label_keys(),
        "label_errors": (),
        "taint_errors": (),
    }


def read_documents(text: str | bytes) -> list[Document]:
    """Return the documents of a text and the items of its lists. Raise InvalidManifest, also without any."""
    documents = [
        item for document in load_documents(text) for item in items_of(document)
    ]
    if not documents:
        raise InvalidManifest.of(
            "", "required", "Empty manifest", "one or more YAML documents"
        )
    return documents


@contextmanager
def lines_of(document: Document) -> Iterator[None]:
    """Raise the faults of a document with their lines."""
    try:
        yield
    except InvalidManifest as invalid:
        raise InvalidManifest(
            attach_lines((document, error) for error in invalid.errors)
        ) from invalid


def read_strategy(
    text: str, *, name: str = ""
) -> tuple[Document, ClusterStagedUpdateStrategy]:
    """Return the only strategy of a text, with this full name if any. Raise InvalidManifest with lines."""
    documents = read_documents(text)
    if len(documents) > 1:
        message = f"there are {len(documents)} documents"
        raise InvalidManifest.of(
            "",
            "too-many",
            message,
            f"one {STAGED_STRATEGY_KIND} or {NAMESPACED_STRATEGY_KIND}",
        )
    with lines_of(documents[0]):
        draft = parse_staged_strategy(documents[0].data)
        if name and draft.full_name != name:
            message = f"the strategy is called {name}; a name cannot be changed"
            raise InvalidManifest.of("metadata.name", "immutable", message, name)
    return documents[0], draft
