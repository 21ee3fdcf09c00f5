"""When what failed on a cluster is tried again."""

from datetime import timedelta

FIRST_DELAY = timedelta(seconds=5)
LONGEST_DELAY = timedelta(minutes=15)


def retry_delay(attempts: int) -> timedelta:
    """Give how long to wait after that many failed attempts: twice as long each time, up to 15 minutes."""
    doublings = min(max(attempts, 1) - 1, 16)
    return min(FIRST_DELAY * (1 << doublings), LONGEST_DELAY)
