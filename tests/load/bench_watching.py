"""`make bench`: 200 clients watch the clusters of a console with one web process, while these change.

Each client lists and watches as the guide says. In the end all know what is there, and pages were never slow.
"""

import http.client
import json
import sys
import threading
import time
from typing import Any

from tests.load.own_console import own_console

CLIENTS, SECONDS, CLUSTERS = 200, 30.0, 300
SLOWEST_PAGE, CORE = 2.0, 1.0
LIST = "/api/v1/clusters?limit=500"


class Watcher(threading.Thread):
    """Lists, and then watches until it is stopped; it honors Retry-After and lists again after 410."""

    def __init__(self, port: int, token: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Token {token}"}
        self.stop = stop
        self.known: dict[str, int] = {}
        self.version, self.watches, self.wrong = "", 0, ""

    def get(self, path: str) -> tuple[int, dict[str, Any], int]:
        for _ in range(3):
            try:
                self.connection.request("GET", path, headers=self.headers)
                answer = self.connection.getresponse()
                content = json.loads(answer.read())
            except (http.client.RemoteDisconnected, ConnectionResetError):
                self.connection.close()
            else:
                return answer.status, content, int(answer.headers.get("Retry-After", 0))
        raise ConnectionError("no answer")

    def run(self) -> None:
        try:
            self.list()
            while not self.stop.is_set():
                self.watch(20)
        except (OSError, http.client.HTTPException, KeyError, ValueError) as error:
            self.wrong = repr(error)

    def list(self) -> None:
        _, content, _ = self.get(f"{LIST}&watchable=true")
        self.version = content["resourceVersion"]
        self.known = {one["name"]: one["revision"] for one in content["items"]}

    def watch(self, seconds: int) -> None:
        query = f"watch=true&resourceVersion={self.version}&timeoutSeconds={seconds}"
        status, content, wait = self.get(f"{LIST}&{query}")
        if status == 410:
            self.list()
            return
        self.watches += 1
        self.version = content["resourceVersion"]
        for event in content["events"]:
            if event["type"] == "DELETED":
                self.known.pop(event["name"], None)
            else:
                self.known[event["name"]] = event["object"]["revision"]
        self.stop.wait(wait)


def main() -> None:
    """Measure, and print what was measured; fail where it is too much."""
    with own_console() as folder:
        _measure(folder)


def _measure(folder: str) -> None:
    from tests.load.polling import cpu_seconds, with_children  # noqa: PLC0415 -- only after the folder is set
    from tests.runtime.processes import watching  # noqa: PLC0415 -- as above

    variables = {"FLEETUI_VAR_DIR": folder, "FLEETUI_ADMIN_PASSWORD": "long enough for anyone"}
    with watching("manage.py", "up", "--port", "0", "--only", "web", **variables) as up:
        token = _world()
        port = int(up.wait_for(r"http://127\.0\.0\.1:(\d+)/")[1])
        processes, stop = with_children(up.process.pid), threading.Event()
        watchers = [Watcher(port, token, stop) for _ in range(CLIENTS)]
        for one in watchers:
            one.start()
        before, started = cpu_seconds(processes), time.monotonic()
        slowest, there = _change(Watcher(port, token, stop), watchers, until=started + SECONDS)
        spent, passed = cpu_seconds(processes) - before, time.monotonic() - started
        stop.set()
        for one in watchers:
            one.join(timeout=60)
        for one in watchers:  # what was written last
            one.stop.clear()
            while one.known != there and time.monotonic() < started + passed + 60:
                one.watch(0)
        up.process.terminate()
        up.process.wait(timeout=30)
    wrong = [one.wrong for one in watchers if one.wrong or one.known != there]
    watches = sum(one.watches for one in watchers)
    print(
        f"{CLIENTS} clients watched {CLUSTERS} clusters for {passed:.0f} s: "
        f"{watches / passed:.0f} answers/s, "
        f"{spent / passed:.0%} of a core (goal {CORE:.0%}), slowest other request {slowest:.2f} s "
        f"(goal {SLOWEST_PAGE:.0f} s), {len(wrong)} clients with another state"
    )
    if wrong or slowest > SLOWEST_PAGE or spent / passed > CORE:
        sys.exit(f"too much, or wrong: {wrong[:3]}")


def _world() -> str:
    """Add clusters and a viewer; return the token of the viewer."""
    from tests.rows import all_joined, api_token, person  # noqa: PLC0415 -- only after the folder is set

    all_joined(*(f"c{number}" for number in range(CLUSTERS)))
    return api_token(person("ana", "viewer"))


def _change(other: Watcher, watchers: list[Watcher], *, until: float) -> tuple[float, dict[str, int]]:
    """Change clusters; return the slowest request once all have listed, and what is there then."""
    from clusters.models import MemberCluster  # noqa: PLC0415 -- only after the folder is set
    from clusters.operations.edit import set_labels  # noqa: PLC0415 -- as above
    from tests.rows import NOW, joined  # noqa: PLC0415 -- as above

    slowest, number, settled = 0.0, 0, float("inf")
    while time.monotonic() < until:
        number += 1
        set_labels(f"c{number % CLUSTERS}", {"n": str(number)}, by=None, now=NOW)
        joined(f"new{number}")
        if number % 2:
            MemberCluster.objects.filter(name=f"new{number}").delete()
        begin = time.monotonic()
        other.get("/api/v1/overview")
        if begin > settled:
            slowest = max(slowest, time.monotonic() - begin)
        elif all(one.version for one in watchers):
            settled = time.monotonic()
        time.sleep(0.5)
    return slowest, dict(MemberCluster.objects.values_list("name", "revision"))


if __name__ == "__main__":
    main()
