"""Wait for the first page of the console and say where it is: `python -m fleetui.announcement`."""

import http.client
import sys
import time

from django.conf import settings

from fleetui.accounts.first_password import first_password_file


def announce(address: str, port: int, *, url: str, started: float) -> None:
    """Write where the console is, once it responds; `started` is a time of the monotonic clock."""
    while not answers(address, port):
        time.sleep(0.1)
    lines = [
        f"FleetUI: {url}  (stop with Ctrl-C)",
        f"ready in {time.monotonic() - started:.1f} s",
    ]
    if path := first_password_file():
        lines.append(
            f"Log in as {settings.FIRST_ADMIN_USER}; the password is in {path}"
        )
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def answers(address: str, port: int) -> bool:
    """Return whether the front page responds, whatever its status."""
    names = [name.lstrip(".") for name in settings.ALLOWED_HOSTS if name != "*"]
    asking = http.client.HTTPConnection(address, port, timeout=60)
    try:
        asking.request("GET", "/", headers={"Host": names[0] if names else address})
        asking.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asking.close()
    return True


if __name__ == "__main__":
    announce(sys.argv[1], int(sys.argv[2]), url=sys.argv[3], started=float(sys.argv[4]))
