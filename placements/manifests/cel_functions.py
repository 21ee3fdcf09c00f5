"""The functions that Open Cluster Management adds to CEL (`rules/other-schedulers.md#cel`).

The library has no types of its own makers: a quantity, version, URL, address or range is a map with one key
that starts with `@`, in canonical form, so that equal values compare as equal.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fleetui.apimachinery.fields import (
    dns_label_problem,
    label_key_problem,
    label_value_problem,
    subdomain_problem,
)
from fleetui.apimachinery.quantity import QuantityError, parse_quantity
from placements.manifests.cel_expression import VARIABLE

Opaque = Mapping[str, Any]
_NANO = 10**9
_WORD = "(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
"""A number without leading zeros, or not only digits."""
_SEMVER = re.compile(
    r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}"
    rf"(-{_WORD}(\.{_WORD})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_LARGEST_INT = 2**63


class CelScope:
    """The context in which expressions are evaluated, for one cluster after another."""

    def __init__(self) -> None:
        import cel  # noqa: PLC0415 -- see `compile_cel`

        self._scores: Mapping[str, Any] = {}
        self.context = cel.Context(
            variables={"format": {}, "ip": {}},
            functions={
                **_functions(),
                "scores": lambda _cluster, name: self._scores[name],
            },
        )

    def enter(self, document: Mapping[str, Any], scores: Mapping[str, Any]) -> None:
        """Set the cluster. `scores` are lists of name and value, by the name of their AddOnPlacementScore."""
        self._scores = scores
        self.context.add_variable(VARIABLE, document)


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    from cel import OptionalValue, stdlib  # noqa: PLC0415 -- see `compile_cel`

    def validate(name: Opaque, text: str) -> Any:
        problem = _FORMATS[name["@format"]](text)
        return OptionalValue.of([str(problem)]) if problem else OptionalValue.none()

    def named(_formats: Any, name: str) -> Any:
        if name not in _FORMATS:
            return OptionalValue.none()
        return OptionalValue.of({"@format": name})

    def of_format(name: str) -> Callable[[Any], Opaque]:
        return lambda _formats: {"@format": name}

    def index_of(holder: Any, part: Any, *offset: int) -> int:
        if isinstance(holder, list):
            return holder.index(part) if part in holder else -1
        return stdlib.index_of(holder, part, *offset)

    def last_index_of(holder: Any, part: Any, *offset: int) -> int:
        if isinstance(holder, list):
            places = [at for at, one in enumerate(holder) if one == part]
            return max(places, default=-1)
        return stdlib.last_index_of(holder, part, *offset)

    return {
        **stdlib.EXTENSIONS["strings"],
        **_OWN,
        **{name: of_format(name) for name in _FORMATS},
        "indexOf": index_of,
        "lastIndexOf": last_index_of,
        "named": named,
        "optSelect": select_optional,
        "validate": validate,
    }


def select_optional(holder: Any, key: Any) -> Any:
    """Return a field or element, if it is there, of a value or an optional value."""
    from cel import OptionalValue  # noqa: PLC0415 -- see `compile_cel`

    if isinstance(holder, OptionalValue):
        if not holder.has_value():
            return holder
        holder = holder.value()
    keys = holder
    if isinstance(holder, list):
        keys = range(len(holder))
    return OptionalValue.of(holder[key]) if key in keys else OptionalValue.none()


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; every number is a double."""
    # `int` refuses NaN and Infinity, which are no JSON.
    return json.loads(text, parse_int=float, parse_constant=int)


def _format(template: str, values: list[Any]) -> str:
    """Return a text with its clauses `%s %d %f %e %b %o %x %X` replaced."""
    rest = list(values)

    def clause(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        value = rest.pop(0)
        if match[2] == "s":
            return value if isinstance(value, str) else json.dumps(value)
        if match[2] in "fe":
            return f"{value:{match[1] or '.6'}{match[2]}}"
        return f"{value:{match[2]}}"

    return re.sub(r"%%|%(\.[0-9]+)?([sdfeboxX])", clause, template)


def quantity_of(text: str) -> Opaque:
    return {"@quantity": str(parse_quantity(text).nano)}


def nano_of(value: Opaque | int) -> int:
    if isinstance(value, int):
        return value * _NANO
    return int(value["@quantity"])


def whole_of(value: Opaque) -> int:
    number, rest = divmod(nano_of(value), _NANO)
    if rest or not -_LARGEST_INT <= number < _LARGEST_INT:
        raise ValueError(value)
    return number


def semver_of(text: str) -> Opaque:
    """Return a version; as Kubernetes reads it, without `v` and with all three numbers."""
    if _SEMVER.fullmatch(text) is None:
        raise ValueError(text)
    return {"@semver": text}


def _order_of_version(version: Opaque) -> Any:
    release, _, rest = version["@semver"].partition("+")[0].partition("-")
    numbers = tuple(map(int, release.split(".")))
    words = list(filter(None, rest.split(".")))
    # A version comes after its previews; a number within a preview comes before a word.
    preview = [
        (not word.isdigit(), int(word) if word.isdigit() else 0, word) for word in words
    ]
    return numbers, not words, preview


def _order(value: Opaque | int) -> Any:
    if isinstance(value, Mapping) and "@semver" in value:
        return _order_of_version(value)
    return nano_of(value)


def compare(left: Opaque, right: Opaque) -> int:
    first, second = _order(left), _order(right)
    return int(first > second) - int(first < second)


def url_of(text: str) -> Opaque:
    parts = urlsplit(text)
    _ = parts.port
    if not (parts.scheme or text.startswith("/")):
        raise ValueError(text)
    return {"@url": text}


def _of_url(read: Callable[[Any], Any]) -> Callable[[Opaque], Any]:
    return lambda url: read(urlsplit(url["@url"]))


def hostname_of(parts: Any) -> str:
    host = parts.netloc.rpartition("@")[2]
    if host.startswith("["):
        return str(host[1 : host.index("]")])
    return str(host.partition(":")[0])


def ip_of(value: Any) -> Opaque:
    """Return an address, of a text or the network address of a range."""
    if isinstance(value, Mapping):
        return {"@ip": value["@cidr"].partition("/")[0]}
    address = ip_address(value)
    if getattr(address, "ipv4_mapped", None) or "%" in value:
        raise ValueError(value)
    return {"@ip": str(address)}


def cidr_of(text: str) -> Opaque:
    address, slash, length = text.partition("/")
    if not slash or not length.isdigit():
        raise ValueError(text)
    ip_network(text, strict=False)
    return {"@cidr": f"{ip_address(address)}/{length}"}


def _network(value: Any) -> Any:
    if not isinstance(value, Mapping):
        value = cidr_of(value)
    return ip_network(value["@cidr"], strict=False)


def contains_ip(network: Any, value: Any) -> bool:
    if not isinstance(value, Mapping):
        value = ip_of(value)
    return ip_address(value["@ip"]) in _network(network)


def contains_cidr(network: Any, value: Any) -> bool:
    outer, inner = _network(network), _network(value)
    return bool(outer.version == inner.version and inner.subnet_of(outer))


def _of_ip(read: Callable[[Any], Any]) -> Callable[[Opaque], Any]:
    return lambda value: read(ip_address(value["@ip"]))


def is_global(address: Any) -> bool:
    is_other = address.is_unspecified or address.is_loopback or address.is_multicast
    return not (is_other or address.is_link_local or str(address) == "255.255.255.255")


def is_link_local_multicast(address: Any) -> bool:
    networks = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))
    return any(
        address in network for network in networks if network.version == address.version
    )


def find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    """Return the first matches, or all, in the order of the text."""
    # Kubernetes has RE2 as well: other engines take exponential time for some patterns.
    import re2  # noqa: PLC0415 -- see `compile_cel`

    options = re2.Options()
    options.log_errors = False
    found = [match.group() for match in re2.compile(pattern, options).finditer(text)]
    return found if most < 0 else found[:most]


def _is(parse: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        try:
            parse(value)
        except (ValueError, QuantityError):
            return False
        return True

    return check


def _shape(pattern: str) -> Callable[[str], str | None]:
    compiled = re.compile(pattern)
    return lambda text: None if compiled.fullmatch(text) else "invalid format"


_FORMATS: dict[str, Callable[[str], Any]] = {
    "dns1123Label": dns_label_problem,
    "dns1123Subdomain": subdomain_problem,
    "dns1035Label": _shape(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"),
    "dns1123LabelPrefix": lambda text: dns_label_problem(text.removesuffix("-")),
    "dns1123SubdomainPrefix": lambda text: subdomain_problem(text.removesuffix("-")),
    "dns1035LabelPrefix": _shape(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?-?"),
    "qualifiedName": label_key_problem,
    "labelValue": label_value_problem,
    "uri": _shape(r"[A-Za-z][A-Za-z0-9+.-]*:\S+|/\S*"),
    "uuid": _shape(r"(?i)[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}"),
    "byte": _shape(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
    "date": _shape(r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"),
    "datetime": _shape(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]{8,}(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
    ),
}
_OWN: dict[str, Callable[..., Any]] = {
    "parseJSON": parse_json,
    "format": _format,
    "quantity": quantity_of,
    "isQuantity": _is(quantity_of),
    "isInteger": _is(whole_of),
    "asInteger": whole_of,
    "asApproximateFloat": lambda value: nano_of(value) / _NANO,
    "sign": lambda value: (nano_of(value) > 0) - (nano_of(value) < 0),
    "add": lambda left, right: {"@quantity": str(nano_of(left) + nano_of(right))},
    "sub": lambda left, right: {"@quantity": str(nano_of(left) - nano_of(right))},
    "semver": semver_of,
    "isSemver": _is(semver_of),
    "major": lambda version: _order_of_version(version)[0][0],
    "minor": lambda version: _order_of_version(version)[0][1],
    "patch": lambda version: _order_of_version(version)[0][2],
    "compareTo": compare,
    "isLessThan": lambda left, right: compare(left, right) < 0,
    "isGreaterThan": lambda left, right: compare(left, right) > 0,
    "url": url_of,
    "isURL": _is(url_of),
    "getScheme": _of_url(lambda parts: parts.scheme),
    "getHost": _of_url(lambda parts: parts.netloc.rpartition("@")[2]),
    "getHostname": _of_url(hostname_of),
    "getPort": _of_url(lambda parts: str(parts.port or "")),
    "getEscapedPath": _of_url(lambda parts: parts.path),
    "getQuery": _of_url(lambda parts: parse_qs(parts.query, keep_blank_values=True)),
    "ip": ip_of,
    "isIP": _is(ip_of),
    "isCanonical": lambda _library, text: ip_of(text)["@ip"] == text,
    "family": _of_ip(lambda address: address.version),
    "isUnspecified": _of_ip(lambda address: address.is_unspecified),
    "isLoopback": _of_ip(lambda address: address.is_loopback),
    "isLinkLocalMulticast": _of_ip(is_link_local_multicast),
    "isLinkLocalUnicast": _of_ip(lambda address: address.is_link_local),
    "isGlobalUnicast": _of_ip(is_global),
    "cidr": cidr_of,
    "isCIDR": _is(cidr_of),
    "containsIP": contains_ip,
    "containsCIDR": contains_cidr,
    "masked": lambda value: {"@cidr": str(_network(value))},
    "prefixLength": lambda value: _network(value).prefixlen,
    "find": lambda text, pattern: "".join(find_all(text, pattern, 1)),
    "findAll": find_all,
    "isSorted": lambda values: values == sorted(values),
    "sum": sum,
    "min": min,
    "max": max,
}
