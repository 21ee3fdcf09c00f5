"""Limits of attempts to log in, the same at every entry point, and counted for all web processes together.

The counters are in the default cache, which is a table of the database. The key of an account is a hash, so
that the table has no names of users, and nothing that was typed into the wrong field.
"""

from dataclasses import dataclass

from allauth.core.internal.ratelimit import RateLimitUsage, consume
from django.contrib.auth.signals import user_login_failed
from django.http import HttpRequest

WAIT_SECONDS = 300
"""After so long, one address may try again for one account."""
RATES = {
    "address": "60/5m/ip",
    "account-at-address": "10/5m/key",
    "account": "30/15m/key",
    "second-factor": "5/5m/key,20/1h/key",
}
"""Failures that are allowed: of an address, of an account from one address and from all, and of its factor.

The limit of an account from everywhere is higher than that from one address, so that a stranger needs several
addresses to keep its owner out.
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that was counted; one that succeeds is taken back."""

    usages: tuple[RateLimitUsage, ...]

    def succeed(self) -> None:
        for usage in self.usages:
            usage.rollback()


def count_attempt(request: HttpRequest, username: str, *, is_second_factor: bool = False) -> Attempt | None:
    """Count an attempt for an account before anything is compared; None if there were too many."""
    account = username.casefold()
    address = request.META.get("REMOTE_ADDR", "")
    keys = {"address": None, "account-at-address": f"{address} {account}", "account": account}
    if is_second_factor:
        keys = {"address": None, "second-factor": account}
    usages = []
    for action, key in keys.items():
        usage = consume(request, app="fleetui.accounts", action=action, config=RATES, key=key, limit_get=True)
        if usage is None:
            return None
        usages.append(usage)
    return Attempt(tuple(usages))


def report_failure(request: HttpRequest, username: str, reason: str) -> None:
    """Send Django's signal `user_login_failed` for a failure that Django does not see itself.

    `authenticate()` sends it for a wrong password. Everything else comes through here: too many attempts, a
    wrong second factor, a proxy or an identity provider that is refused. `credentials` has the keys
    `username` and `reason`.
    """
    credentials = {"username": username, "reason": reason}
    user_login_failed.send(sender=__name__, credentials=credentials, request=request)
