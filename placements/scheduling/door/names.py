"""The syntax of Kubernetes names: object names, label keys, label values, property names.

Each function answers with what is wrong, in words that follow the value, or with None. The rules are those
of Kubernetes object names and labels; property names follow `spec/lifecycle.md` B.1.3.
"""

import re
from typing import NamedTuple

DNS_SUBDOMAIN = 'lower-case letters, digits, "-" and ".", starting and ending with a letter or digit'
NAME_PART = 'at most 63 letters, digits, "-", "_" and ".", starting and ending with a letter or digit'
LABEL_KEY = f"[DNS name/]name; the name: {NAME_PART}"
LABEL_VALUE = f"empty, or {NAME_PART}"
RESOURCE_PROPERTY = "resources.kubernetes-fleet.io/<total|allocatable|available>-<resource>"
PROPERTY_NAME = f"{RESOURCE_PROPERTY}, or a name such as example.com/cost"
DNS_LABEL = 'at most 63 lower-case letters, digits and "-", starting and ending with a letter or digit'
SERVICE_NAME = (
    'at most 63 lower-case letters, digits and "-", starting with a letter, ending with a letter or digit'
)
API_VERSION = "v1, or a group and a version such as apps/v1"
OBJECT_NAME = 'up to 253 characters without "/", "%" and spaces, not "." or ".."'


class NameProblem(NamedTuple):
    """What is wrong with a name: a stable code, and words that follow the name."""

    code: str
    words: str


_RESOURCE_PREFIX = "resources.kubernetes-fleet.io/"
_LONGEST_PART = 63
_LONGEST_SUBDOMAIN = 253
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_OBJECT_NAME = re.compile(r"[^/%\s]+")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_VERSION = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def _bad(words: str) -> NameProblem:
    return NameProblem("bad-format", words)


def subdomain_problem(text: str, *, longest: int = _LONGEST_SUBDOMAIN) -> NameProblem | None:
    """Say why a text is no DNS-1123 subdomain."""
    if len(text) > longest:
        return NameProblem("too-long", f"has {len(text)} characters; at most {longest} fit")
    return None if _SUBDOMAIN.fullmatch(text) else _bad("is not a DNS name")


def dns_label_problem(text: str) -> NameProblem | None:
    """Say why a text is no DNS-1123 label, the syntax of namespaces."""
    if len(text) > _LONGEST_PART:
        return NameProblem("too-long", f"has {len(text)} characters; at most {_LONGEST_PART} fit")
    return None if _LABEL.fullmatch(text) else _bad("is not a DNS label")


def service_name_problem(text: str) -> NameProblem | None:
    """Say why a text is no DNS-1035 label, the syntax of services."""
    starts_with_digit = text[:1].isdigit()
    return _bad("starts with a digit") if starts_with_digit else dns_label_problem(text)


def label_key_problem(text: str) -> NameProblem | None:
    """Say why a text is no qualified name, the syntax of label, taint and toleration keys."""
    prefix, slash, name = text.rpartition("/")
    if slash and subdomain_problem(prefix):
        return _bad('has something before the "/" that is not a DNS name')
    return _part_problem(name)


def label_value_problem(text: str) -> NameProblem | None:
    """Say why a text is no label value."""
    return _part_problem(text) if text else None


def _part_problem(text: str) -> NameProblem | None:
    if len(text) > _LONGEST_PART:
        return NameProblem("too-long", f"has a part of {len(text)} characters; at most {_LONGEST_PART} fit")
    return None if _PART.fullmatch(text) else _bad("is empty or has characters that are not allowed here")


def property_name_problem(text: str) -> NameProblem | None:
    """Say why a text names no property: reported resource usage, a qualified name, or a longer path."""
    if text.startswith(_RESOURCE_PREFIX):
        return _resource_problem(text.removeprefix(_RESOURCE_PREFIX))
    prefix, *parts = text.split("/")
    if not parts:
        return _part_problem(prefix)
    if subdomain_problem(prefix):
        return _bad('has something before the first "/" that is not a DNS name')
    return next(filter(None, map(_part_problem, parts)), None)


def _resource_problem(text: str) -> NameProblem | None:
    sort, dash, resource = text.partition("-")
    if not dash or sort not in ("total", "allocatable", "available"):
        return _bad("does not say which figure of which resource is meant")
    return label_key_problem(resource)


def object_name_problem(text: str) -> NameProblem | None:
    """Say why a text cannot be the name of any Kubernetes object."""
    fits = len(text) <= _LONGEST_SUBDOMAIN and text not in (".", "..") and _OBJECT_NAME.fullmatch(text)
    return None if fits else _bad("cannot be the name of an object")


def group_problem(text: str) -> NameProblem | None:
    """Say why a text is no API group; the empty one is the core group."""
    return subdomain_problem(text) if text else None


def version_problem(text: str) -> NameProblem | None:
    """Say why a text is no API version."""
    return None if len(text) <= _LONGEST_PART and _VERSION.fullmatch(text) else _bad("is not an API version")


def api_version_problem(text: str) -> NameProblem | None:
    """Say why a text is no group and version, or version alone, as documents begin with."""
    group, slash, version = text.rpartition("/")
    if slash and (not group or group_problem(group)):
        return _bad('has something before the "/" that is not an API group')
    return version_problem(version)


def kind_problem(text: str) -> NameProblem | None:
    """Say why a text is no kind."""
    return None if len(text) <= _LONGEST_PART and _KIND.fullmatch(text) else _bad("is not a kind")
