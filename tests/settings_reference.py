"""The table of the settings in their reference, from their model: `python -m tests.settings_reference`."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from fleetui.env import Variables, variable_name

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"
HEAD = "| variable | meaning | default |\n|---|---|---|\n"
UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}


def table() -> str:
    rows = []
    for field_name, field in Variables.model_fields.items():
        assert isinstance(field.json_schema_extra, dict)
        default = field.json_schema_extra["shown"] or written(field.default)
        rows.append(
            f"| `{variable_name(field_name)}` | {field.description} | {default} |\n"
        )
    return HEAD + "".join(rows)


def written(default: Any) -> str:
    """Return a default as a person writes it into a variable."""
    if not default and not isinstance(default, int):
        return "none"
    if isinstance(default, bool):
        return f"`{int(default)}`"
    if isinstance(default, timedelta):
        unit, period = next(
            (unit, period)
            for unit, period in UNITS.items()
            if default % period == timedelta()
        )
        return f"`{default // period}{unit}`"
    return f"`{default}`"


def with_table(page: str) -> str:
    """Return the page with the table of the model in place of its own."""
    return re.sub(rf"{re.escape(HEAD)}(\|.*\n)*", lambda _: table(), page, count=1)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
