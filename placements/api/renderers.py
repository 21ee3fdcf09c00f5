"""Formats of responses beside JSON: YAML, and CSV for tables."""

import json
from typing import Any

from rest_framework.renderers import BaseRenderer, JSONRenderer

from fleetui.apimachinery.yaml import dump_yaml


class YamlRenderer(BaseRenderer):
    """Writes what the JSON renderer writes, as YAML."""

    media_type = "application/yaml"
    format = "yaml"
    charset = "utf-8"

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        text = JSONRenderer().render(data, *args, **kwargs)
        return dump_yaml(json.loads(text)).encode() if text else b""


class CsvRenderer(BaseRenderer):
    """Passes on a table that is CSV already."""

    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"

    def render(self, data: Any, *_args: Any, **_kwargs: Any) -> bytes:
        return str(data).encode()
