"""The browser that tests and screenshots start."""

import os
from pathlib import Path

_INSTALLED = (Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium"))
CHROMIUM = Path(
    os.environ.get("CHROMIUM")
    or next((path for path in _INSTALLED if path.exists()), _INSTALLED[-1])
)
"""What `CHROMIUM` names, or the headless shell, which takes a quarter less time than the whole browser."""
