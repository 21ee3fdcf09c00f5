"""A live hub from end to end: connected by a command, projected by processes, read over HTTP."""

import re
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode

from tests.hubs.fake_hub import FakeHub, serve_hub
from tests.hubs.hub_documents import member, placement, run_status, snapshot, staged_run
from tests.hubs.test_projection_placements import (
    bound,
    changed,
    resource_snapshot,
    scheduled,
)
from tests.runtime.processes import eventually, watching
from tests.runtime.test_watch_hubs import connect

PASSWORD = "the first password of anyone"
BINDINGS = "clusterresourcebindings"
PAUSE = 0.5
"""Seconds between two looks at a page: without a pause they keep a core from what they wait for."""


class Browser:
    """Reads pages of a console as its first administrator."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(CookieJar())
        )
        form = self.read("/login/")
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
        assert found, form
        entered = {
            "csrfmiddlewaretoken": found[1],
            "username": "admin",
            "password": PASSWORD,
        }
        with self._opener.open(
            f"{address}/login/", urlencode(entered).encode(), timeout=30
        ) as answer:
            assert "Log out" in answer.read().decode()

    def read(self, path: str) -> str:
        with self._opener.open(f"{self._address}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def wait_for(self, path: str, *words: str) -> str:
        """Return a page once it has all of these words."""

        def page() -> str:
            try:
                found = self.read(path)
            except HTTPError as error:
                error.close()
                if error.code == 404:  # not there yet
                    return ""
                raise
            return found if all(word in found for word in words) else ""

        return eventually(page, pause=PAUSE)


def fleet() -> FakeHub:
    """Return a hub with a placement on two clusters, and a staged update run of another."""
    fake = FakeHub()
    now = datetime.now(UTC).isoformat()
    for name in ("paris", "rome"):
        fake.put("memberclusters", member(name, heartbeat=now))
    fake.put("clusterresourceplacements", changed(placement("web"), status=scheduled()))
    fake.put("clusterschedulingpolicysnapshots", snapshot("web"))
    fake.put("clusterresourcesnapshots", resource_snapshot("web"))
    fake.put("clusterstagedupdateruns", {**staged_run("web-1"), "status": run_status()})
    for name in ("paris", "rome"):
        put_binding(fake, name, steps=5)
    return fake


def put_binding(fake: FakeHub, cluster: str, *, steps: int) -> None:
    """Write a binding of the generation that the hub gives it, with so many of its conditions True."""
    content = bound("web", cluster)
    generation = fake.put(BINDINGS, content)["metadata"]["generation"]
    conditions = [
        {
            **condition,
            "observedGeneration": generation,
            "status": "True" if index < steps else "Unknown",
        }
        for index, condition in enumerate(content["status"]["conditions"])
    ]
    fake.put(BINDINGS, changed(content, status={"conditions": conditions}))


def test_pages_follow_a_hub_until_it_goes_away(
    console_folder: Path, tmp_path: Path
) -> None:
    variables = {
        "FLEETUI_VAR_DIR": str(console_folder),
        "FLEETUI_ADMIN_PASSWORD": PASSWORD,
        "FLEETUI_MEMBER_LOOPBACK": "1",
    }
    with ExitStack() as serving:
        fake, server = serving.enter_context(serve_hub(fleet()))
        connect(variables, server, tmp_path)
        with watching("manage.py", "up", "--port", "0", **variables) as up:
            console = Browser(up.wait_for(r"FleetUI: (http://\S+)/")[1])
            console.wait_for("/hubs/prod-eu/", "Live")
            console.wait_for("/hubs/prod-eu/clusters/", "paris", "rome")
            console.wait_for(
                "/hubs/prod-eu/placements/web/", "paris", "rome", "Available"
            )
            console.wait_for(
                "/hubs/prod-eu/rollouts/web/1/", "Observed from the hub", "Completed"
            )
            console.wait_for(
                "/hubs/prod-eu/rollouts/staged/runs/web-1/", "canary-first"
            )
            requests = len(fake.seen)

            put_binding(fake, "rome", steps=3)
            console.wait_for("/hubs/prod-eu/placements/web/", "Applying")
            fake.put(
                "clusterresourceplacements",
                changed(placement("web", clusters=3), status=scheduled()),
            )
            console.wait_for(
                "/hubs/prod-eu/placements/web/rollouts/", "changed on the hub"
            )
            fake.delete("memberclusters", "paris")
            eventually(
                lambda: "paris" not in console.read("/hubs/prod-eu/clusters/"),
                pause=PAUSE,
            )
            assert (
                len(fake.seen) - requests <= 60
            )  # pages cause none: streams and checks only

            serving.close()
            page = console.wait_for("/hubs/prod-eu/placements/web/", "Out of date")
            assert "rome" in page
            assert "Next attempt" in page
