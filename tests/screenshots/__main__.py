"""`make screenshots`: each demo fleet in a console of its own, its main pages in every look."""

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

from tests.chromium import CHROMIUM
from tests.runtime.processes import ROOT
from tests.screenshots.camera import (
    KEPT_HEIGHT,
    LOOKS,
    Camera,
    Look,
    camera_at,
    photograph,
)
from tests.screenshots.console import SUBJECTS, console_with
from tests.screenshots.tour import MAIN, Addresses, addresses

KEPT_FLEET = 9
KEPT = ROOT / "docs" / "screenshots"
_LIGHT = Look(dark=False, width=1440)
_KEPT_LOOKS = {
    "decision": Look(dark=True, width=1440),
    "topology": Look(dark=True, width=1440),
    "overview": Look(dark=False, width=390),
    "what-if": Look(dark=False, width=390),
}


def main() -> None:
    """Photograph what the options ask for."""
    options = _options()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu"],
        )
        for size in options.fleets:
            _photograph_fleet(size, options, playwright, browser)
        browser.close()


def _options() -> Namespace:
    parser = ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    parser.add_argument(
        "fleets",
        nargs="*",
        type=int,
        metavar="SIZE",
        help="4, 9, 100, 5000; none: all of them",
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=ROOT / "var" / "screenshots",
        help="the folder for them",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="PAGE",
        help=f"such as {' '.join(MAIN)}",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="renew those of docs/screenshots, of the fleet of 9",
    )
    options = parser.parse_args()
    options.fleets = options.fleets or (
        [KEPT_FLEET] if options.keep else list(SUBJECTS)
    )
    if unknown := set(options.fleets) - set(SUBJECTS):
        parser.error(f"there is no demo of {unknown.pop()} clusters")
    return options


def _photograph_fleet(
    size: int, options: Namespace, playwright: Playwright, browser: Browser
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        console_with(size, Path(folder), playwright) as console,
    ):
        camera = camera_at(console, browser)
        with camera.page(_LIGHT) as page:
            found = addresses(page, console)
        if options.keep and size == KEPT_FLEET:
            _keep(camera, found)
        else:
            wanted = {name: found[name] for name in options.only or found}
            _every_look(camera, wanted, options.to / str(size))


def _every_look(camera: Camera, wanted: Addresses, folder: Path) -> None:
    for look in LOOKS:
        with camera.page(look) as page:
            for name, address in wanted.items():
                photograph(page, address, folder / f"{name}-{look.name}.png")
    sys.stdout.write(f"{folder}: {len(wanted)} pages in {len(LOOKS)} looks\n")


def _keep(camera: Camera, found: Addresses) -> None:
    for name in MAIN:
        with camera.page(_KEPT_LOOKS.get(name, _LIGHT)) as page:
            photograph(page, found[name], KEPT / f"{name}.png", tallest=KEPT_HEIGHT)
    sys.stdout.write(f"{KEPT}: {', '.join(MAIN)}\n")


if __name__ == "__main__":
    main()
