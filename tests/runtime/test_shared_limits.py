"""Attempts are counted for several web processes together."""

import json
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.runtime.processes import watching


@pytest.mark.nightly
def test_three_web_processes_allow_ten_failures_together(tmp_path: Path) -> None:
    options = ("--only", "web", "--workers", "3", "--port", "0")
    with watching("manage.py", "up", *options, FLEETUI_VAR_DIR=str(tmp_path)) as up:
        address = up.wait_for(r"^up +\| FleetUI: (http://127\.0\.0\.1:\d+/)")[1]

        def guess(number: int) -> int:
            body = json.dumps(
                {"username": "admin", "password": f"guess {number}"}
            ).encode()
            request = urllib.request.Request(
                f"{address}api/v1/token", body, {"Content-Type": "application/json"}
            )
            with pytest.raises(urllib.error.HTTPError) as refusal:
                urllib.request.urlopen(request, timeout=60)
            refusal.value.close()
            return refusal.value.code

        with ThreadPoolExecutor(16) as pool:
            statuses = Counter(pool.map(guess, range(40)))

    assert statuses == {401: 10, 429: 30}
