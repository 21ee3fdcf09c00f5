"""Links to the preview of a manifest on a console: the content is in the address."""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from fleetui.apimachinery.yaml import MEBIBYTE, dump_yaml

LONGEST_LINK = 3_500
"""Of the content: the server reads addresses of up to 4,094 bytes."""


def preview_link(console: str, document: Mapping[str, Any]) -> str:
    """Return the address of the preview of a manifest, "" where it would be too long."""
    content = urlsafe_b64encode(zlib.compress(dump_yaml(document).encode(), 9)).decode()
    if len(content) > LONGEST_LINK:
        return ""
    return f"{console.rstrip('/')}/previews/?content={content}"


def linked_text(content: str) -> str:
    """Return the manifest of a link. Raise ValueError."""
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(urlsafe_b64decode(content), MEBIBYTE).decode()
    except (ValueError, zlib.error) as error:
        raise ValueError("the content of the link is incomplete") from error
    if not decompressor.eof:
        raise ValueError("the content of the link is incomplete or too large")
    return text
