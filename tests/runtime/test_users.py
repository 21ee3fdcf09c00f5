"""People click through a console with two web processes: no error, few slow pages, bounded computing.

The form of the goal, on PostgreSQL: `FLEETUI_USERS="100 300 5000" pytest -s tests/runtime/test_users.py
-m nightly` (users, seconds, clusters of the demo).
"""

import http.client
import os
import re
import sys
import threading
import time
from pathlib import Path
from random import Random
from statistics import quantiles

import pytest

from tests.load.polling import cpu_seconds, with_children
from tests.runtime.processes import watching
from tests.runtime.test_survives import Stage, stage

__all__ = ["stage"]
PAUSE = 8.0
"""Mean seconds that a person looks at a page."""
SLOW, MOST_CPU = 2.0, 0.15
"""Seconds to a response, 95th percentile, on a machine that others use, and of a processor for a page."""
PAGES = (
    *("/", "/clusters/", "/placements/", "/rollouts/", "/resources/", "/activity/", "/inbox/", "/topology/"),
    *("/clusters/?q=a&sort=-name", "/placements/?state=unfulfilled", "/search/?q=o", "/api/v1/clusters"),
)
LINKS = re.compile(r'href="(/(?:clusters|placements|rollouts)/[^"?#]+/)"')
SESSIONS = """
from pathlib import Path
from django.conf import settings
from django.test import Client
from fleetui.hub_scope import LOCAL_HUB, in_hub
from tests.rows import person
with in_hub(LOCAL_HUB), open("{file}", "w") as file:
    for number in range({count}):
        client = Client()
        client.force_login(person(f"user-{{number}}", "viewer"))
        file.write(client.cookies[settings.SESSION_COOKIE_NAME].value + "\\n")
"""


class Person(threading.Thread):
    """Opens a page, follows one of its links or goes elsewhere, and looks at each for some seconds."""

    def __init__(self, port: int, session: str, *, seed: int, until: float) -> None:
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Cookie": f"sessionid={session}", "User-Agent": "load test"}
        self.chance, self.until = Random(seed), until
        self.seconds: list[float] = []
        self.errors: list[str] = []

    def run(self) -> None:
        path = self.chance.choice(PAGES)
        time.sleep(self.chance.random() * PAUSE)
        while time.monotonic() < self.until:
            started = time.monotonic()
            links = self.open(path)
            self.seconds.append(time.monotonic() - started)
            path = self.chance.choice([*PAGES, *links[:40]])
            time.sleep(max(0.0, min(self.chance.expovariate(1 / PAUSE), self.until - time.monotonic())))
        self.connection.close()

    def open(self, path: str) -> list[str]:
        """Return the links of a page."""
        for is_last in (False, True):
            try:
                self.connection.request("GET", path, headers=self.headers)
                answer = self.connection.getresponse()
                text = answer.read().decode()
            except (http.client.HTTPException, OSError) as error:  # as a browser does: once more
                self.connection.close()
                if is_last:
                    self.errors.append(f"{path}: {error!r}")
            else:
                if answer.status not in (200, 304):
                    self.errors.append(f"{path}: {answer.status}")
                return LINKS.findall(text)
        return []


@pytest.mark.nightly
@pytest.mark.timing
def test_people_who_click_through_the_console_get_their_pages(stage: Stage, tmp_path: Path) -> None:
    count, seconds, clusters = map(int, os.environ.get("FLEETUI_USERS", "100 40 100").split())
    stage.manage("load_demo", str(clusters))
    stage.manage("shell", "-v0", "-c", SESSIONS.format(file=tmp_path / "sessions", count=count))
    sessions = (tmp_path / "sessions").read_text().split()
    with watching(
        "manage.py", "up", "--port", "0", "--only", "web", "--workers", "2", **stage.variables
    ) as up:
        port = int(up.wait_for(r"http://127\.0\.0\.1:(\d+)/")[1])
        up.wait_for("ready in")
        processes, until = with_children(up.process.pid), time.monotonic() + seconds
        people = [Person(port, one, seed=number, until=until) for number, one in enumerate(sessions)]
        before = cpu_seconds(processes)
        for one in people:
            one.start()
        for one in people:
            one.join(timeout=seconds + 90)
        spent = cpu_seconds(processes) - before
    found = [each for one in people for each in one.seconds]
    errors = [each for one in people for each in one.errors]
    p95, cpu = quantiles(found, n=20)[-1], spent / len(found)
    sys.stdout.write(
        f"{count} people, {clusters} clusters, {len(found)} pages in {seconds} s: 95 % within {p95:.2f} s, "
        f"{cpu * 1000:.0f} ms of a processor for a page of the web processes, {len(errors)} errors\n"
    )

    assert errors == []
    assert len(found) > count
    assert p95 <= SLOW
    assert cpu <= MOST_CPU
