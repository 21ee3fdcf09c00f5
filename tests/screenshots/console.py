"""A console of its own with a demo fleet in it, and what the pictures need to know of that fleet."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import APIRequestContext, Playwright

from tests.runtime.processes import ROOT, eventually, watching

PASSWORD = "of the photographer only"
SUBJECTS = {4: "even-by-region", 9: "web", 100: "storefront", 5000: "storefront"}
"""The placement that is photographed, by the size of the fleet: one with steps, a spread and a rollout."""
_PATIENCE = 600


@dataclass(frozen=True)
class Console:
    """A running console: its address, the demo in it, and a way to ask its REST API."""

    url: str
    size: int
    api: APIRequestContext

    @property
    def placement(self) -> str:
        """Name the placement that is photographed."""
        return SUBJECTS[self.size]

    def get(self, path: str) -> dict[str, Any]:
        """Return what the API answers to a GET."""
        answer = self.api.get(f"{self.url}/api/v1/{path}", timeout=60_000)
        assert answer.ok, f"{path}: {answer.status} {answer.text()[:300]}"
        found: dict[str, Any] = answer.json()
        return found

    def decisions(self) -> list[dict[str, Any]]:
        """List the decisions of the placement, newest first."""
        found: list[dict[str, Any]] = self.get(
            f"placements/{self.placement}/decisions"
        )["items"]
        return found

    def run(self) -> dict[str, Any] | None:
        """Return the newest run of the placement, if it has one."""
        runs = self.get(f"rollouts?placement={self.placement}")["items"]
        return runs[0] if runs else None

    def put(self, path: str, manifest: dict[str, Any]) -> None:
        """Save a manifest by the API."""
        saved = self.api.put(f"{self.url}/api/v1/{path}", data=manifest)
        assert saved.ok, saved.text()

    def want_one_more(self) -> None:
        """Save the placement with one cluster more, so that there are two policies to compare."""
        manifest = self.get(f"placements/{self.placement}")
        manifest["spec"]["policy"]["numberOfClusters"] += 1
        self.put(f"placements/{self.placement}", manifest)

    def change_a_resource(self) -> None:
        """Change what the placement selects, so that there is an update to watch."""
        path = f"resources/core/ConfigMap/{self.placement}/{self.placement}-settings"
        manifest = self.get(path)
        manifest["data"]["photographed"] = "yes"
        self.put(path, manifest)


@contextmanager
def console_with(size: int, folder: Path, playwright: Playwright) -> Iterator[Console]:
    """Start a console on a free port with the demo of this size; wait until it is decided and rolled out."""
    variables = {"FLEETUI_VAR_DIR": str(folder), "FLEETUI_ADMIN_PASSWORD": PASSWORD}
    with watching("manage.py", "up", "--port", "0", **variables) as up:
        url = up.wait_for(r"FleetUI: (http://\S+?)/ ", seconds=_PATIENCE)[1]
        up.wait_for("ready in", seconds=_PATIENCE)
        _manage("load_demo", str(size), **variables)
        console = Console(
            url,
            size,
            playwright.request.new_context(extra_http_headers=_token(url, playwright)),
        )
        _settle(console)
        yield console
        up.process.terminate()
        up.process.wait(timeout=60)


def _manage(*words: str, **variables: str) -> None:
    command = [sys.executable, "manage.py", *words]
    subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, check=True, capture_output=True
    )


def _token(url: str, playwright: Playwright) -> dict[str, str]:
    request = playwright.request.new_context()
    answer = request.post(
        f"{url}/api/v1/token", data={"username": "admin", "password": PASSWORD}
    )
    token = answer.json()["token"]
    request.dispose()
    return {"Authorization": f"Token {token}"}


def _settle(console: Console) -> None:
    eventually(lambda: console.get("overview")["beingDecided"] == 0, seconds=_PATIENCE)
    if len(console.decisions()) < 2:
        console.want_one_more()
        eventually(lambda: len(console.decisions()) > 1, seconds=_PATIENCE)
    first = _run_at(console, "finished")
    console.change_a_resource()
    eventually(lambda: _is_worth_a_picture(console, after=first), seconds=_PATIENCE)


def _run_at(console: Console, state: str) -> int:
    run = eventually(
        lambda: (run := console.run()) and run["state"] == state and run,
        seconds=_PATIENCE,
    )
    return int(run["number"]) if run else 0


def _is_worth_a_picture(console: Console, *, after: int) -> bool:
    """Return whether the run of the update is at its second wave, or has ended."""
    run = console.run()
    if run is None or run["number"] <= after:
        return False
    clusters = console.get(f"rollouts/{console.placement}/{run['number']}")["clusters"]
    later = [cluster for cluster in clusters if (cluster["wave"] or 0) > 1]
    return run["state"] == "finished" or any(
        one["phase"] not in ("waiting", "available") for one in later
    )
