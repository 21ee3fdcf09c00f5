"""A failure of a cluster is visible on open pages within ten seconds, with a worker and no reload."""

import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.runtime.processes import watching

pytestmark = pytest.mark.nightly
SECONDS = 10
PASSWORD = "correct horse battery"
PAGES = {
    "cluster": (
        "/clusters/smartfish/",
        "#live [aria-labelledby=placed]",
        "Unreachable",
    ),
    "placement": ("/placements/web/", "#clusters", "Unreachable"),
    "placements": ("/placements/", "#list", "1 unreachable"),
    "map": ("/", "#fleet", "heartbeat late"),
    "overview": ("/", "#attention", "smartfish"),
}
"""Open pages, where the failure is to appear on each, and in which words."""


def test_a_cluster_that_fails_is_seen_on_all_open_pages_within_ten_seconds(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = {"FLEETUI_VAR_DIR": str(tmp_path), "FLEETUI_ADMIN_PASSWORD": PASSWORD}
    with watching("manage.py", "up", "--port", "0", **folder) as up:
        url = up.wait_for(r"FleetUI: (http://127\.0\.0\.1:\d+)/")[1]
        up.wait_for(r"^up +\| ready in")
        with watching("manage.py", "load_demo", "9", **folder) as load:
            load.wait_for("^loaded: 9 clusters")
        with browser.new_context(
            base_url=url, viewport={"width": 1440, "height": 900}
        ) as context:
            form = context.new_page()
            form.goto("/placements/")
            form.get_by_label("Username").fill("admin")
            form.get_by_label("Password").fill(PASSWORD)
            form.get_by_role("button", name="Log in").click()
            expect(form.locator("#list")).to_contain_text("Healthy")
            opened = {name: context.new_page() for name in PAGES}
            for name, (path, place, words) in PAGES.items():
                opened[name].goto(path)
                expect(opened[name].locator(place)).not_to_contain_text(words)
                opened[name].evaluate("window.loaded = true")

            form.goto("/clusters/smartfish/inject-fault/")
            form.get_by_role("button", name="Simulate a failure").click()
            injected, seen = time.monotonic(), {}
            for name, (_, place, words) in PAGES.items():
                left = injected + SECONDS - time.monotonic()
                expect(opened[name].locator(place)).to_contain_text(
                    words, timeout=max(1, 1000 * left)
                )
                seen[name] = round(time.monotonic() - injected, 1)

            with capsys.disabled():
                sys.stdout.write(f" {seen} ")
            assert all(page.evaluate("window.loaded") for page in opened.values())
