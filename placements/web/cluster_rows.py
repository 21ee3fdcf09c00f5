"""Rows of labels and taints in forms: each row is a line of the text that operations read."""

from django.http import QueryDict


def typed_rows(given: QueryDict) -> tuple[str, str]:
    """Return the rows as lines: labels `key=value`, taints `key=value:effect`. Empty rows are left out.

    Text areas named `labels` and `taints` count as well.
    """
    keys, values = given.getlist("label_key"), given.getlist("label_value")
    labels = [
        f"{key.strip()}={value.strip()}"
        for key, value in zip(keys, values, strict=False)
        if key.strip() or value.strip()
    ]
    columns = [given.getlist(f"taint_{part}") for part in ("key", "value", "effect")]
    taints = [
        f"{key.strip()}{'=' if value.strip() else ''}{value.strip()}:{effect.strip()}"
        for key, value, effect in zip(*columns, strict=False)
        if key.strip() or value.strip()
    ]
    return "\n".join([given.get("labels", ""), *labels]).strip(), "\n".join(
        [given.get("taints", ""), *taints]
    ).strip()
