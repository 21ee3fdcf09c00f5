"""How many bytes a browser without a cache fetches for a page with a chart."""

import re

import pytest
from django.test import Client

from fleetui.staticfiles import SMALL_BUILDS
from tests.rows import load_nine, person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("collected_static"),
]

PLOTLY = "vendor/plotly.min"
MOST_BEFORE_PLOTLY = 57_000
MOST_OF_PLOTLY = 330_000
PAGES = ("/", "/placements/web/", "/topology/?key=region")


@pytest.mark.parametrize("path", PAGES)
def test_a_first_page_is_small(path: str) -> None:
    load_nine()
    client = Client()
    client.force_login(person("ada", "viewer"))

    page = client.get(path)
    packed = client.get(path, headers={"Accept-Encoding": "br, gzip"})
    addresses = set(
        re.findall(r'(?:href|src|content)="(/static/[^"#]+)', page.content.decode())
    )
    sizes = {address: _size(client, address) for address in addresses}
    plotly = sum(size for one, size in sizes.items() if PLOTLY in one)
    rest = len(packed.content) + sum(sizes.values()) - plotly

    assert packed["Content-Encoding"] == "gzip"
    assert rest <= MOST_BEFORE_PLOTLY
    assert 0 < plotly <= MOST_OF_PLOTLY or not SMALL_BUILDS.exists()


def _size(client: Client, address: str) -> int:
    """Return how many bytes of a static file are sent to a browser that takes Brotli."""
    response = client.get(address, headers={"Accept-Encoding": "br, gzip"})
    sent = b"".join(response.streaming_content)  # type: ignore[attr-defined]  # a file
    assert response.status_code == 200
    assert response.get("Content-Encoding") == "br" or len(sent) < 1000
    return len(sent)
