"""Pages are compressed for a browser that accepts it, and are the same then."""

import gzip

import pytest
from django.test import Client

from tests.rows import load_nine, person

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/clusters/", "/api/v1/clusters"])
def test_an_answer_is_compressed_where_it_is_accepted(path: str) -> None:
    load_nine()
    client = Client()
    client.force_login(person("ada", "viewer"))

    plain = client.get(path)
    packed = client.get(path, headers={"Accept-Encoding": "gzip"})

    assert "Content-Encoding" not in plain
    assert packed["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed["Vary"]
    assert len(packed.content) < len(plain.content) / 2
    assert len(gzip.decompress(packed.content)) == pytest.approx(
        len(plain.content), rel=0.1
    )
