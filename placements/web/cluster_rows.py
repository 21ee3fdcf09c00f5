"""Rows of labels and taints in forms: each row is a line of the text that operations read."""

from typing import Any

from django.http import QueryDict

from clusters.filters import label_keys

_EMPTY_ROWS = 3


def typed_rows(given: QueryDict) -> tuple[str, str]:
    """Return the rows as lines: labels `key=value`, taints `key=value:effect`. Empty rows are left out.

    Lines of the fields `labels` and `taints`, which scripts send, come first.
    """
    labels, taints = given.get("labels", "").splitlines(), given.get("taints", "").splitlines()
    for key, value in zip(given.getlist("label_key"), given.getlist("label_value"), strict=False):
        if key.strip() or value.strip():
            labels.append(f"{key.strip()}={value.strip()}")
    columns = [given.getlist(f"taint_{part}") for part in ("key", "value", "effect")]
    for key, value, effect in zip(*columns, strict=False):
        if key.strip() or value.strip():
            taints.append(f"{key.strip()}{'=' if value.strip() else ''}{value.strip()}:{effect.strip()}")
    return "\n".join(labels), "\n".join(taints)


def row_context(labels: str, taints: str) -> dict[str, Any]:
    """Return the rows of lines, with empty ones for more, and the keys that clusters have."""
    label_rows = [line.partition("=")[::2] for line in labels.splitlines() if line.strip()]
    taint_rows = []
    for line in taints.splitlines():
        written, _, effect = line.partition(":")
        key, _, value = written.partition("=")
        taint_rows.append((key.strip(), value.strip(), effect.strip()))
    return {
        "label_rows": label_rows + [("", "")] * _EMPTY_ROWS,
        "taint_rows": taint_rows + [("", "", "")] * _EMPTY_ROWS,
        "keys": label_keys(),
        "label_faults": (),
        "taint_faults": (),
    }
