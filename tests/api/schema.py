"""The OpenAPI document of the API, for several tests."""

from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft4Validator


@cache
def generated_schema() -> dict[str, Any]:
    """Generate the document once per process: it takes a second. It must not be changed."""
    return SchemaGenerator().get_schema(request=None, public=True)


def example_problems(content: dict[str, Any]) -> list[str]:
    """Return what of an example differs from the schema of its content."""
    validator = Draft4Validator(
        {**_plain(content["schema"]), "components": _components()}
    )
    return [
        f"{error.json_path}: {error.message[:200]}"
        for error in validator.iter_errors(content["example"])
    ]


@cache
def _components() -> Any:
    return _plain(generated_schema()["components"])


def _plain(schema: Any) -> Any:
    """Return a schema of OpenAPI 3.0 as JSON schema: null is a type."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: _plain(value)
        for key, value in schema.items()
        if key not in ("nullable", "example")
    }
    return (
        {"anyOf": [found, {"type": "null"}]}
        if schema.get("nullable") is True
        else found
    )
