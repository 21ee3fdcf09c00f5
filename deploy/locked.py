"""Print the entries of a lock file, with their hashes, for some requirements and what these need.

    python locked.py requirements.lock pyproject.toml     the dependencies of the project
    python locked.py requirements.lock NAME …             named packages

The lock has tools for development, too; an image gets none of them. pip chooses, with the versions of the
lock, and what it chooses is installed with `--require-hashes`.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path


def main(lock_name: str, *wanted: str) -> None:
    """Write the entries to standard output."""
    lock = Path(lock_name).read_text(encoding="utf-8")
    entries = {
        (match[1].lower(), match[2]): match[0]
        for match in re.finditer(
            r"^([\w.-]+)==(\S+).*(?:\n    .*)*", lock, re.MULTILINE
        )
    }
    if wanted[0].endswith(".toml"):
        wanted = tuple(
            tomllib.loads(Path(wanted[0]).read_text(encoding="utf-8"))["project"][
                "dependencies"
            ]
        )
    with tempfile.TemporaryDirectory() as folder:
        pins, report = Path(folder) / "pins", Path(folder) / "report"
        # Without the hashes, which pip accepts for requirements only and not for what limits them.
        lines = [text.partition("\\")[0].strip() for text in entries.values()]
        pins.write_text("\n".join(lines), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
        ]
        options = ["--constraint", str(pins), "--report", str(report)]
        subprocess.run([*command, *options, *wanted], check=True)  # noqa: S603  # our own command line
        chosen = [
            one["metadata"]
            for one in json.loads(report.read_text(encoding="utf-8"))["install"]
        ]
    for one in sorted(chosen, key=lambda metadata: metadata["name"].lower()):
        name = re.sub(r"[-_.]+", "-", one["name"]).lower()
        if (name, one["version"]) not in entries:
            sys.exit(
                f"locked.py: {name}=={one['version']} is not in {lock_name}: run `make lock`"
            )
        sys.stdout.write(entries[name, one["version"]] + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
