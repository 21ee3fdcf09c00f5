"""What every endpoint shares: who calls, and when."""

from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from rest_framework.request import Request
from rest_framework.views import APIView

from placements.scheduling.faults import Fault, Faults


class Endpoint(APIView):
    """One address; each of its methods asks one query or runs one operation."""


def caller(request: Request) -> dict[str, Any]:
    """Give the arguments that every operation takes: by whom, and when."""
    user = request.user
    return {"by": user if isinstance(user, User) else None, "now": datetime.now(UTC)}


def refuse_other_names(document: object, wanted: dict[str, str]) -> None:
    """Raise Faults unless a document is an object that is called as its address says."""
    if not isinstance(document, dict):
        raise Faults([Fault("", "wrong-type", "is not a manifest", "an object")])
    faults = []
    for path, expected in wanted.items():
        found: Any = document
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, str) and found != expected:
            message = f"{found[:63]!r} is another one than the address names"
            faults.append(Fault(path, "conflict", message, expected or "left out"))
    if faults:
        raise Faults(faults)
