"""A filter misspelt does not show everything unsaid: which word there is not, and which there are."""

import html
import re
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from django.test import Client

from clusters.models import MemberCluster
from clusters.operations.edit import cordon
from tests.rows import NOW, joined

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
ADDRESSES = [
    ("/clusters/?state=xx", "state", "eligible"),
    ("/clusters/?order=xx", "order", "-heartbeat"),
    ("/clusters/?download=xx", "download", "csv"),
    ("/placements/?state=xx", "state", "unfulfilled"),
    ("/placements/?type=xx", "type", "PickN"),
    ("/placements/?semantics=xx", "semantics", "kubefleet"),
    ("/placements/?order=xx", "order", "placed_count"),
    ("/placements/web/?outcome=xx", "outcome", "not-selected"),
    ("/rollouts/?state=xx", "state", "superseded"),
    ("/rollouts/?waiting=xx", "waiting", "approval"),
    ("/activity/?kind=xx", "kind", "staged-run"),
    ("/decisions/{id}/?outcome=xx", "outcome", "outranked"),
    ("/decisions/{id}/?reason=xx", "reason", "required-affinity"),
    ("/decisions/{id}/?view=xx", "view", "funnel"),
    ("/decisions/{id}/?download=xx", "download", "json"),
    ("/what-if/?impact=xx", "impact", "stuck"),
    ("/what-if/?variant=xx", "variant", "cordon"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("address", "name", "word"), ADDRESSES)
def test_says_which_word_there_is_not_and_which_there_are(
    viewer: Client, text_of: Fetch, decision_id: str, address: str, name: str, word: str
) -> None:
    address = address.format(id=decision_id)

    page = text_of(viewer, address)
    notice = page.partition(f"Unsupported value for {name}: “xx”.")[2].partition(
        "</p>"
    )[0]
    link = re.findall(rf'<a href="([^"]*)">{word}</a>', notice)

    assert link == [f"?{name}={word}"]
    assert f"Unsupported value for {name}" not in text_of(
        viewer, address.partition("?")[0] + html.unescape(link[0])
    )


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    "address",
    [
        "/clusters/",
        "/clusters/?order=-label:region&state=",
        "/placements/?type=&state=",
        "/activity/?kind=",
    ],
)
def test_says_nothing_of_what_there_is(
    viewer: Client, text_of: Fetch, address: str
) -> None:
    assert "Unsupported value" not in text_of(viewer, address)


@pytest.mark.usefixtures("web")
def test_the_other_filters_hold_and_the_part_for_htmx_says_it_too(
    viewer: Client,
) -> None:
    answer = viewer.get(
        "/clusters/?q=fox&state=xx&after=zz", headers={"HX-Request": "true"}
    )
    page = answer.content.decode()

    assert "Unsupported value for state: “xx”." in page
    assert 'href="?q=fox&amp;state=cordoned"' in page
    assert "bravelion" not in page


@pytest.mark.usefixtures("web")
def test_what_is_typed_is_the_same_filter_as_the_parameters(
    viewer: Client, text_of: Fetch
) -> None:
    typed = text_of(viewer, "/placements/?q=status%3Dhealthy+type%3DPickN+we")
    given = text_of(viewer, "/placements/?q=we&state=healthy&type=PickN")
    wrong = text_of(viewer, "/placements/?q=size%3Dbig+we")

    for page in (typed, given):
        assert 'name="q" value="status=Healthy type=PickN we"' in page
        assert 'href="?q=we&amp;state=healthy&amp;type=PickAll"' in page
        assert 'href="/api/v1/placements?q=we&amp;state=healthy&amp;type=PickN' in page
    assert "Unsupported value for filter: “size”." in wrong
    assert 'href="/placements/web/"' in wrong


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("address", "words", "value"),
    [
        ("/rollouts/", "Not ended", "running"),
        ("/rollouts/", "Completed", "finished"),
        ("/placements/", "With problems", "degraded"),
        ("/clusters/", "Not ready", "not-eligible"),
        ("/clusters/", "Candidate", "eligible"),
        ("/clusters/", "Not monitored", "not-monitored"),
        ("/clusters/", "Cordoned", "cordoned"),
    ],
)
def test_a_status_is_typed_in_the_words_of_the_page_or_as_before(
    viewer: Client, text_of: Fetch, address: str, words: str, value: str
) -> None:
    for name in ("silent", "closed"):
        joined(name)
    cordon(["closed"], by=None, now=NOW)
    MemberCluster.objects.filter(name="silent").update(verdict="unhealthy")
    quoted = f'"{words}"' if " " in words else words
    shown = f'name="q" value="{html.escape(f"status={quoted}")}"'

    for typed in (quoted, quoted.lower(), value):
        page = text_of(viewer, f"{address}?{urlencode({'q': f'status={typed}'})}")
        assert shown in page
        assert "Unsupported value" not in page
        assert re.search(rf'aria-current="true"[^>]*>\s*{words}', page)
    assert shown in text_of(viewer, f"{address}?state={value}")


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("address", "words", "value"),
    [
        ("/rollouts/", "Not ended", "running"),
        ("/clusters/", "Not monitored", "not-monitored"),
    ],
)
def test_the_example_in_a_filter_is_a_word_of_the_page(
    viewer: Client, text_of: Fetch, address: str, words: str, value: str
) -> None:
    page = html.unescape(text_of(viewer, address))

    assert f'placeholder="status="{words}""' in page
    assert f"status={value}" not in page
