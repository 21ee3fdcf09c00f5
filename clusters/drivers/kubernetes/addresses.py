"""Which IP addresses a connection may go to (`rules/kubernetes-driver.md#addresses`)."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_METADATA = frozenset({ip_address("100.100.100.200"), ip_address("fd00:ec2::254")})
"""Metadata services of clouds that are not link-local."""
_THIS_NETWORK = IPv4Network("0.0.0.0/8")
# The prefix for local use, 64:ff9b:1::/48, is not read: it stays reserved, and so denied.
_NAT64 = IPv6Network("64:ff9b::/96")


class AddressNotAllowed(Exception):
    """An address that connections must not go to; `setting` names what allows or denies it."""

    def __init__(self, address: str, reason: str, setting: str) -> None:
        super().__init__(f"{address} is not allowed: {reason}")
        self.address = address
        self.setting = setting


class NameNotResolved(Exception):
    """A host name has no address, or the name servers did not answer in time."""


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raise OSError."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in entries))


@dataclass(frozen=True, slots=True)
class AddressRules:
    """The settings of this console that decide what may be connected to.

    Without `networks` every address is allowed that is not always denied.
    """

    networks: tuple[Network, ...] = ()
    allow_loopback: bool = False
    proxies: frozenset[str] = frozenset()
    allow_insecure_tls: bool = False
    allow_in_cluster: bool = False
    resolve: Callable[[str, int], list[str]] = field(
        default=resolve_host, compare=False, repr=False
    )


def check_address(text: str, rules: AddressRules) -> None:
    """Raise AddressNotAllowed unless connections may go to the address."""
    address = ip_address(text.partition("%")[0])
    inner = embedded_address(address)
    if inner.is_loopback:
        if not rules.allow_loopback:
            raise AddressNotAllowed(
                text, "loopback", "FLEETUI_MEMBER_LOOPBACK=1 allows it"
            )
        return
    for reason, is_denied in (
        (
            "unspecified",
            inner.is_unspecified or (inner.version == 4 and inner in _THIS_NETWORK),
        ),
        ("link-local", inner.is_link_local),
        ("multicast", inner.is_multicast),
        ("reserved", inner.is_reserved),
        ("a metadata service", inner in _METADATA),
    ):
        if is_denied:
            raise AddressNotAllowed(text, reason, "no setting allows it")
    if rules.networks and not any(
        inner in network
        for network in rules.networks
        if network.version == inner.version
    ):
        reason = "outside of the networks of members"
        raise AddressNotAllowed(
            text, reason, "FLEETUI_MEMBER_NETWORKS lists the allowed networks"
        )


def checked_addresses(
    host: str, port: int, rules: AddressRules, *, seconds: float
) -> list[str]:
    """Resolve a host; return its addresses, all of them allowed. Raise NameNotResolved, AddressNotAllowed."""
    addresses = resolved_addresses(host, port, rules, seconds=seconds)
    for address in addresses:
        check_address(address, rules)
    return addresses


def resolved_addresses(
    host: str, port: int, rules: AddressRules, *, seconds: float
) -> list[str]:
    """Return the addresses of a host, allowed or not. Raise NameNotResolved.

    A name is resolved in a thread of its own: getaddrinfo has no timeout, and may take half a minute.
    """
    if is_ip_address(host):
        return [host]
    addresses: list[str] = []

    def resolve() -> None:
        with suppress(
            OSError, UnicodeError
        ):  # UnicodeError: a label that IDNA does not encode
            addresses.extend(rules.resolve(host, port))

    thread = threading.Thread(target=resolve, name=f"resolve {host}", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if thread.is_alive():
        raise NameNotResolved(f"the name servers did not answer for {host} in time")
    if not addresses:
        raise NameNotResolved(f"{host} has no address")
    return addresses


def is_ip_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def embedded_address(address: Address) -> Address:
    """Return the IPv4 address in a mapped, NAT64 or 6to4 address; any other address unchanged."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address
