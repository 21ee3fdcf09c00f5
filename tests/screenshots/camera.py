"""The browser as a camera: logged in, in both themes, on a desk and on a phone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, StorageState

from tests.screenshots.console import PASSWORD, Console

_PATIENCE = 120_000
_HEIGHT = 900
KEPT_HEIGHT = 1100
"""How much of a page is kept for the documentation, from its top."""
_ALL_DRAWN = """() => [...document.querySelectorAll("[data-chart][data-view='chart'] .plot")]
    .every((plot) => plot.classList.contains("js-plotly-plot"))"""


@dataclass(frozen=True)
class Look:
    """How a page is looked at."""

    dark: bool
    width: int

    @property
    def name(self) -> str:
        """Return the word for it in the name of a file."""
        return f"{'dark' if self.dark else 'light'}-{self.width}"


LOOKS = tuple(Look(dark, width) for dark in (False, True) for width in (1440, 390))


@dataclass(frozen=True)
class Camera:
    """A browser at a console, and the session of the administrator."""

    browser: Browser
    console: Console
    session: StorageState

    @contextmanager
    def page(self, look: Look) -> Iterator[Page]:
        """Open a page with this look."""
        context = self.browser.new_context(
            base_url=self.console.url,
            viewport={"width": look.width, "height": _HEIGHT},
            color_scheme="dark" if look.dark else "light",
            reduced_motion="reduce",
            storage_state=self.session,
        )
        context.set_default_timeout(_PATIENCE)
        yield context.new_page()
        context.close()


def camera_at(console: Console, browser: Browser) -> Camera:
    """Log in as the administrator."""
    context = browser.new_context(base_url=console.url)
    page = context.new_page()
    page.goto("/login/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    with page.expect_navigation(url=f"{console.url}/"):
        page.get_by_role("button", name="Log in").click()
    session = context.storage_state()
    context.close()
    return Camera(browser, console, session)


def photograph(
    page: Page, address: str, to: Path, *, tallest: int | None = None
) -> None:
    """Open an address, wait until all charts are drawn, and take the picture; `tallest` cuts it off there.

    The window is made as tall as the page, so that what sticks to its edges is where it belongs.
    """
    assert page.viewport_size
    width = page.viewport_size["width"]
    page.set_viewport_size({"width": width, "height": tallest or _HEIGHT})
    answer = page.goto(address)
    assert answer, address
    assert answer.ok, f"{address}: {answer.status}"
    if tallest is None:  # charts are drawn when they come near
        height = int(page.evaluate("document.documentElement.scrollHeight"))
        page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function(_ALL_DRAWN)
    to.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=to)
