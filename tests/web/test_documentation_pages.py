"""The documentation in the console: each page is there, and each of its links leads somewhere."""

import re

import pytest
from django.test import Client

from fleetui.documentation import documentation_files, title_of
from placements.services.placements import save_placement
from placements.services.scheduling import schedule_placement
from tests.rows import NOW, person, placement_document, spec

pytestmark = pytest.mark.django_db
_START = "/help/documentation/"


@pytest.fixture(name="reader")
def _reader() -> Client:
    client = Client()
    client.force_login(person("ada", "viewer"))
    return client


def test_every_link_and_image_of_every_page_leads_to_a_page_and_its_heading(
    reader: Client,
) -> None:
    pages = {
        path: reader.get(f"{_START}{path}").content.decode()
        for path, file in documentation_files().items()
        if file.suffix == ".md"
    }
    lost = []
    for path, text in pages.items():
        article = text.partition('<article class="documentation">')[2]
        for target in re.findall(
            r'(?:href|src)="([^"]*)"', article.split("</article>")[0]
        ):
            address, _, heading = target.partition("#")
            named = address.removeprefix(_START) or path
            if "://" in target or (named in documentation_files() and not heading):
                continue
            if f'id="{heading}"' not in pages.get(named, ""):
                lost.append((path, target))

    assert len(pages) > 50
    assert lost == []
    assert [path for path, text in pages.items() if "<h1" not in text] == []
    assert [path for path in pages if "{" in title_of(path)] == []


def test_an_image_is_sent_and_another_file_is_not(reader: Client) -> None:
    image = reader.get(f"{_START}screenshots/decision.png")

    assert image["Content-Type"] == "image/png"
    for path in ("conf.py", "../pyproject.toml", "guides/../../README", "nowhere"):
        assert reader.get(f"{_START}{path}").status_code == 404


def test_directives_are_shown_as_figures_and_lists(reader: Client) -> None:
    start = reader.get(_START).content.decode()
    guides = reader.get(f"{_START}guides/index").content.decode()

    assert f'src="{_START}screenshots/decision.png"' in start
    assert f'<a href="{_START}guides/drain">' in guides
    assert "{toctree}" not in start + guides


def test_the_start_lists_every_page(reader: Client) -> None:
    listed = reader.get(_START).content.decode().partition('id="all-pages"')[2]

    pages = {
        path for path, file in documentation_files().items() if file.suffix == ".md"
    }
    assert set(re.findall(rf'href="{_START}([^"]*)"', listed)) == pages


def test_the_index_starts_with_tutorials_and_guides_and_ends_with_decision_records(
    reader: Client,
) -> None:
    listed = reader.get(_START).content.decode().partition('id="all-pages"')[2]
    order = [
        listed.index(f'href="{_START}{path}"')
        for path in ("tutorial", "guides/drain", "concepts/rollouts", "reference/index")
    ]
    order += [
        listed.index(f'href="{_START}{path}"')
        for path in ("contributing/index", "adr/README")
    ]

    assert order == sorted(order)


def test_the_search_finds_pages_those_with_the_word_in_the_title_first(
    reader: Client,
) -> None:
    page = reader.get("/search/?q=roll+back").content.decode()

    found = re.findall(rf'href="{_START}([^"]+)"', page)
    assert found[0] == "guides/roll-back"
    assert "No results" not in page


def test_the_example_of_the_guide_opens_in_the_demo_of_four(reader: Client) -> None:
    address = f"{_START}concepts/four-clusters"
    assert 'href="/demo/"' in reader.get(address).content.decode()

    document = placement_document("even-by-region", spec())
    row = save_placement(document, by=None, now=NOW, is_demo=True).object
    schedule_placement(row.pk, now=NOW)

    page = reader.get(address).content.decode()
    decision = row.decisions.select_related("record").get()
    assert f'href="/decisions/{decision.record.decision_id}/"' in page
