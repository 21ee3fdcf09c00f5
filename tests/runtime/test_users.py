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
from collections import Counter
from pathlib import Path
from random import Random
from statistics import quantiles

import pytest

from tests.load.polling import cpu_seconds, with_children
from tests.runtime.processes import watching
from tests.runtime.test_survives import Stage, stage
from tests.runtime.test_up import parts_of

__all__ = ["stage"]
PAUSE = 8.0
"""Mean seconds that a person looks at a page."""
SLOW, MOST_CPU = 2.0, 0.15
"""95th percentiles: seconds to a response, on a machine that others use, and of a processor for a page."""
BUCKET = re.compile(
    r'^fleetui_http_request_cpu_seconds_bucket\{le="([^"]+)",.*view="([^"]*)"\} ([\d.]+)$',
    re.MULTILINE,
)
PAGES = (
    *(
        "/",
        "/clusters/",
        "/placements/",
        "/rollouts/",
        "/resources/",
        "/activity/",
        "/inbox/",
        "/topology/",
    ),
    *(
        "/clusters/?q=a&order=-name",
        "/placements/?state=unfulfilled",
        "/search/?q=o",
        "/api/v1/clusters",
    ),
)
LINKS = re.compile(r'href="(/(?:clusters|placements|rollouts)/[^"?#]+/)"')
TOKEN = "a token of Prometheus with 32 characters"
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
            links = LINKS.findall(self.fetch(path))
            self.seconds.append(time.monotonic() - started)
            path = self.chance.choice([*PAGES, *links[:40]])
            time.sleep(
                max(
                    0.0,
                    min(
                        self.chance.expovariate(1 / PAUSE),
                        self.until - time.monotonic(),
                    ),
                )
            )
        self.connection.close()

    def fetch(self, path: str) -> str:
        """Return the text of a page."""
        for is_last in (False, True):
            try:
                self.connection.request("GET", path, headers=self.headers)
                answer = self.connection.getresponse()
                text = answer.read().decode()
            except (
                http.client.HTTPException,
                OSError,
            ) as error:  # as a browser does: again
                self.connection.close()
                if is_last:
                    self.errors.append(f"{path}: {error!r}")
            else:
                if answer.status not in (200, 304):
                    self.errors.append(f"{path}: {answer.status}")
                return text
        return ""


@pytest.mark.nightly
@pytest.mark.timing
def test_people_who_click_through_the_console_get_their_pages(
    stage: Stage, tmp_path: Path
) -> None:
    count, seconds, clusters = map(
        int, os.environ.get("FLEETUI_USERS", "100 40 100").split()
    )
    stage.manage("load_demo", str(clusters))
    stage.manage(
        "shell", "-v0", "-c", SESSIONS.format(file=tmp_path / "sessions", count=count)
    )
    sessions = (tmp_path / "sessions").read_text().split()
    with watching(
        *("manage.py", "up", "--port", "0", "--only", "web", "--workers", "2"),
        **stage.variables,
        FLEETUI_METRICS_TOKEN=TOKEN,
    ) as up:
        port = int(up.wait_for(r"http://127\.0\.0\.1:(\d+)/")[1])
        up.wait_for("ready in")
        # Not those of the whole console: the one that announced the address ends soon after.
        processes = with_children(parts_of(up)["web"])
        until = time.monotonic() + seconds
        people = [
            Person(port, session, seed=number, until=until)
            for number, session in enumerate(sessions)
        ]
        before = cpu_seconds(processes)
        for person in people:
            person.start()
        for person in people:
            person.join(timeout=seconds + 90)
        spent = cpu_seconds(processes) - before
        metrics = Person(port, "", seed=0, until=0.0)
        metrics.headers["Authorization"] = f"Bearer {TOKEN}"
        computed = BUCKET.findall(metrics.fetch("/metrics"))
        metrics.connection.close()
    found = [second for person in people for second in person.seconds]
    errors = [error for person in people for error in person.errors]
    p95, counts = quantiles(found, n=20)[-1], Counter[str]()
    slow = Counter[str]()
    for limit, view, upto in computed:
        counts[limit] += int(float(upto))
        slow[view] += int(float(upto)) * {"+Inf": 1, str(MOST_CPU): -1}.get(limit, 0)
    quick = counts[str(MOST_CPU)] / counts["+Inf"]
    sys.stdout.write(
        f"{count} people, {clusters} clusters, {len(found)} pages in {seconds} s: 95 % within {p95:.2f} s; "
        f"{spent / len(found) * 1000:.0f} ms of a processor for a page of the web processes, "
        f"{quick:.1%} within {MOST_CPU * 1000:.0f} ms, slower {+slow}; {len(errors)} errors\n"
    )

    assert errors == []
    assert len(found) > count
    assert p95 <= SLOW
    assert quick >= 0.95
