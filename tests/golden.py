"""Recorded outputs in `tests/data/`: tests compare with them, or write them where FLEETUI_RECORD is set."""

import os
from pathlib import Path

DATA = Path(__file__).parent / "data"


def check_recorded(name: str, text: str) -> None:
    """Compare a text with the recorded one."""
    path = DATA / name
    if "FLEETUI_RECORD" in os.environ:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        f"{name} differs from what is recorded"
    )
