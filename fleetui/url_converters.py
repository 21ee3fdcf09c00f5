"""Converters of addresses that pages and REST share; importing this module registers them."""

from operator import methodcaller

from django.urls import register_converter
from django.urls.converters import StringConverter

_PART = r"[^/:\x00-\x1f\x7f]{1,253}"


class FullNameConverter(StringConverter):
    """An object of a kind that may be namespaced: `name` or `namespace:name`; views get its full name."""

    regex = rf"{_PART}(?::{_PART})?"

    def to_python(self, value: str) -> str:
        return value.replace(":", "/")

    to_url = staticmethod(methodcaller("replace", "/", ":"))  # type: ignore[assignment]  # a method in the base


register_converter(FullNameConverter, "full_name")
