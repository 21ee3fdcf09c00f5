"""Pages that htmx swaps: what a browser does by itself when it opens a page, and old pages that are gone."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, Request, expect

from tests.page_samples import sample_pages
from tests.rows import person

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("nine")]

Enter = Callable[..., Page]
IN_USE = """() => [...new Set([...document.styleSheets]
    .filter((one) => one.ownerNode.media !== "not all").map((one) => one.href))].filter(Boolean).sort()"""


def _mark(page: Page) -> None:
    """Mark the document, so that a new one is noticed."""
    page.evaluate("() => { window.isMarked = true; }")


def _is_same_document(page: Page) -> bool:
    return bool(page.evaluate("() => window.isMarked === true"))


def _heading(page: Page, name: str) -> None:
    """Wait until the page with this heading has been swapped in, and has the focus."""
    expect(page.get_by_role("heading", level=1, name=name, exact=True)).to_be_focused()


def test_a_link_swaps_the_page_and_the_focus_goes_to_its_heading(enter: Enter) -> None:
    page = enter("/placements/", "operator")
    sections = page.get_by_role("navigation", name="Sections")
    _mark(page)
    page.evaluate("scrollTo(0, 200)")

    sections.get_by_role("link", name="Clusters").click()

    _heading(page, "Clusters")
    assert _is_same_document(page)
    expect(page).to_have_title("Clusters · FleetUI")
    expect(page).to_have_url(re.compile("/clusters/$"))
    expect(sections.locator("[aria-current=page]")).to_have_text(
        re.compile(r"^\s*Clusters\s*$")
    )
    assert page.evaluate("scrollY") == 0


def test_back_and_forward_show_the_pages_where_they_were_left(enter: Enter) -> None:
    page = enter("/help/semantics/", "operator")
    _mark(page)
    title = page.title()
    page.evaluate("scrollTo(0, 300)")

    page.get_by_role("link", name="Glossary").last.evaluate("one => one.click()")
    _heading(page, "Glossary")
    page.go_back()

    expect(page).to_have_title(title)
    page.wait_for_function("() => scrollY === 300")
    page.go_forward()
    _heading(page, "Glossary")
    assert _is_same_document(page)


def test_what_polled_on_the_page_before_polls_no_more(enter: Enter) -> None:
    page = enter("/placements/", "operator")
    expect(page.locator("#list")).to_be_visible()
    sent: list[str] = []

    page.get_by_role("link", name="Activity").click()
    _heading(page, "Activity")
    page.on("request", lambda request: sent.append(request.url))
    page.evaluate(
        """async () => {
            for (let turn = 0; turn < 3; turn += 1) document.body.dispatchEvent(new Event("tick"));
            await fetch("/activity/");
        }"""
    )

    assert [one for one in sent if "/placements/" in one] == []


def test_a_form_with_errors_stays_with_what_was_entered(
    enter: Enter, complaints: list[str]
) -> None:
    User.objects.create_superuser("root")
    page = enter("/users/", name="root")
    _mark(page)
    form = page.locator("main form").last
    form.get_by_label("Username").fill("no spaces please")
    form.get_by_label("Password").fill("short")

    form.get_by_label("Password").press("Enter")

    expect(page.locator("#errors")).to_contain_text("too short")
    expect(form.get_by_label("Username")).to_have_value("no spaces please")
    assert _is_same_document(page)
    assert not User.objects.filter(username="no spaces please").exists()
    complaints.clear()  # the browser reports the status


def test_a_form_is_sent_with_the_button_that_was_pressed_and_shows_the_message(
    enter: Enter,
) -> None:
    page = enter("/clusters/nimblefox/", "operator")
    _mark(page)

    page.get_by_role("main").get_by_role("button", name="Cordon", exact=True).click()

    expect(page.get_by_role("status").filter(has_text="cordoned")).to_be_visible()
    assert _is_same_document(page)


def test_the_script_of_the_charts_is_fetched_once(enter: Enter) -> None:
    page = enter("/topology/?key=region", "operator")
    drawn = page.locator("main svg.main-svg").first
    expect(drawn).to_be_visible()  # after this, no other request is right
    fetched: list[Request] = []
    page.on(
        "request",
        lambda one: fetched.append(one) if "plotly" in one.url else None,
    )

    page.get_by_role("link", name="Activity").click()
    _heading(page, "Activity")
    page.go_back()

    expect(drawn).to_be_visible()
    assert fetched == []
    assert page.locator("head script[src*=plotly]").count() == 1


def test_the_editor_with_scripts_of_its_own_is_opened_by_the_browser(
    enter: Enter,
) -> None:
    page = enter("/placements/web/", "operator")
    _mark(page)

    page.get_by_role("link", name="Edit", exact=True).first.click()

    expect(page.locator("#editing")).to_be_visible()
    assert not _is_same_document(page)


def test_logging_out_leaves_nothing_of_the_page(enter: Enter) -> None:
    page = enter("/clusters/", "operator")
    _mark(page)

    page.locator("#user-menu summary").click()
    page.get_by_role("button", name="Log out").click()

    expect(page).to_have_url(re.compile("/login/"))
    assert not _is_same_document(page)


def test_a_page_that_is_missing_says_so(enter: Enter, complaints: list[str]) -> None:
    page = enter("/clusters/", "operator")
    page.get_by_role("main").get_by_role("link", name="nimblefox").first.evaluate(
        "one => { one.href = '/clusters/missing/'; htmx.process(one.parentElement); }"
    )

    page.get_by_role("main").get_by_role("link", name="nimblefox").first.click()

    _heading(page, "Page not found")
    complaints.clear()


def test_every_page_has_its_title_and_its_style_sheets_also_when_swapped(
    enter: Enter,
) -> None:
    ana = person("ana", "operator", "approver", "cluster-administrator")
    pages = sample_pages(
        cluster="nimblefox", placement="web", by=ana, now=timezone.now()
    )
    page = enter("/", name="ana")
    differing = {}
    for name, address in pages.items():
        page.goto(address)
        loaded = page.title(), page.evaluate(IN_USE)
        page.goto("/activity/")
        link = page.locator("footer a").last
        link.evaluate(
            "(one, href) => { one.setAttribute('href', href); htmx.process(one); one.click(); }",
            address,
        )
        expect(page).to_have_title(loaded[0])
        swapped = page.title(), page.evaluate(IN_USE)
        if swapped != loaded:
            differing[name] = set(loaded[1]) ^ set(swapped[1])

    assert differing == {}


def test_a_poll_that_brings_the_same_picture_draws_nothing(enter: Enter) -> None:
    page = enter("/placements/web/", "operator")
    plots = page.locator(".topology svg.main-svg")
    expect(plots.first).to_be_visible()
    plots.first.evaluate("one => { one.isMarked = true; }")
    fetched: list[str] = []
    page.on("request", lambda one: fetched.append(one.url))

    page.evaluate(
        """() => {
            document.getElementById("live").setAttribute("hx-get", "?v=0");
            htmx.process(document.getElementById("live"));
            document.body.dispatchEvent(new Event("tick"));
        }"""
    )

    expect(page.locator("#live[hx-get='?v=0']")).to_have_count(0)
    expect(plots.first).to_be_visible()
    assert plots.first.evaluate("one => one.isMarked")
    assert [one for one in fetched if "figure=" in one] == []


def test_each_chart_is_drawn_once_by_a_script_that_is_compiled_once(
    enter: Enter,
) -> None:
    page = enter("/topology/?key=region", "operator")
    expect(page.locator("main svg.main-svg").first).to_be_visible()
    scripts: list[str] = []
    page.on(
        "request",
        lambda one: scripts.append(one.url) if one.resource_type == "script" else None,
    )
    page.evaluate(
        """() => {
            const react = Plotly.react;
            window.draws = {};
            Plotly.react = (plot, ...more) => {
                const place = location.pathname + plot.id;
                draws[place] = (draws[place] ?? 0) + 1;
                return react(plot, ...more);
            };
        }"""
    )
    for address in ("/placements/web/", "/topology/?key=region&key2=env"):
        link = page.locator("footer a").last
        link.evaluate(
            "(one, href) => { one.setAttribute('href', href); htmx.process(one); one.click(); }",
            address,
        )
        expect(page).to_have_url(re.compile(re.escape(address) + "$"))
        expect(page.locator("main svg.main-svg").first).to_be_visible()

    draws = page.evaluate("() => draws")

    assert scripts == []
    assert len(draws) >= 3
    assert set(draws.values()) == {1}
