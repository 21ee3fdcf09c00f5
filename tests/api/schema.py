"""The OpenAPI document of the API, for several tests."""

from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator


@cache
def generated_schema() -> dict[str, Any]:
    """Generate the document once per process: it takes a second. Nobody may change it."""
    return SchemaGenerator().get_schema(request=None, public=True)
