"""Limits of attempts to log in, the same at every entry point, and counted for all web processes together.

The counters are in the default cache, which is a table of the database. The key of an account is a hash, so
that the table has no names of users, and nothing that was typed into the wrong field.
"""

from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv6Address, IPv6Network, ip_address

from django.contrib.auth.signals import user_login_failed
from django.core.cache import cache
from django.http import HttpRequest

WAIT_SECONDS = 300
"""After so long, one address may try again for one account."""
_MINUTE, _HOUR = 60, 3600
RATES = {
    "address": [(60, 5 * _MINUTE)],
    "account-at-address": [(10, 5 * _MINUTE)],
    "account": [(30, 15 * _MINUTE)],
    "second-factor": [(5, 5 * _MINUTE), (20, _HOUR)],
}
"""Failures that are allowed in so many seconds: of an address, of an account from one address and from all,
and of its factor.

The limit of an account from everywhere is higher than that from one address, so that a stranger needs several
addresses to keep its owner out.
"""
_IPV6_PREFIX = 64
"""Bits of an address that a client cannot choose: a customer has that many addresses."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that was counted: a place of each limit; one that succeeds gives them back."""

    places: tuple[str, ...]

    def succeed(self) -> None:
        cache.delete_many(self.places)


def count_attempt(
    request: HttpRequest, username: str, *, is_second_factor: bool = False
) -> Attempt | None:
    """Count an attempt for an account before anything is compared; None if there were too many.

    A limit has as many places as failures are allowed, each an entry of the cache that expires. The cache
    adds an entry once, whatever else adds it at the same time, so that no lock is needed.
    """
    account, address = username.casefold(), str(request.META.get("REMOTE_ADDR", ""))
    with suppress(ValueError):  # the name of a socket counts as it is
        ip = ip_address(address)
        if isinstance(ip, IPv6Address) and ip.ipv4_mapped is None:
            address = str(IPv6Network((int(ip), _IPV6_PREFIX), strict=False))
    keys = {
        "address": address,
        "account-at-address": f"{address} {account}",
        "account": account,
    }
    if is_second_factor:
        keys = {"address": address, "second-factor": account}
    used_places = []
    for name, key in keys.items():
        for most, seconds in RATES[name]:
            start = f"attempts:{name}:{seconds}:{sha256(key.encode()).hexdigest()}"
            places = [f"{start}:{number}" for number in range(most)]
            used = cache.get_many(places)
            free = (
                one for one in places if one not in used and cache.add(one, 1, seconds)
            )
            place = next(free, None)
            if place is None:
                return None
            used_places.append(place)
    return Attempt(tuple(used_places))


def report_failure(request: HttpRequest, username: str, reason: str) -> None:
    """Send Django's signal `user_login_failed` for a failure that Django does not see itself.

    `authenticate()` sends it for a wrong password. Everything else comes through here: too many attempts, a
    wrong second factor, a proxy or an identity provider that is refused. `credentials` has the keys
    `username` and `reason`.
    """
    user_login_failed.send(
        sender=__name__,
        credentials={"username": username, "reason": reason},
        request=request,
    )
