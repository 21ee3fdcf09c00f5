"""The states of simulated clusters in the database, one row for each."""

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError
from django.db.models import QuerySet

from clusters.drivers.simulated.state import Stored
from clusters.models import SimulatedState


class DatabaseStore:
    """Keeps the state of one simulated cluster in its row; when the cluster goes, so does the state."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id

    def load(self) -> Stored:
        """Give what was saved last."""
        rows = self._rows().values_list("revision", "content")
        return next((Stored(*row) for row in rows), Stored(0, {}))

    def save(self, content: Mapping[str, Any], *, expected: int) -> bool:
        """Save the next state if `expected` is still the revision, by a conditional update."""
        if expected:
            unmoved = self._rows().filter(revision=expected)
            return bool(unmoved.update(revision=expected + 1, content=content))
        try:
            _, is_new = SimulatedState.objects.get_or_create(
                cluster_id=self._cluster_id, defaults={"revision": 1, "content": content}
            )
        except IntegrityError:  # the cluster left the fleet meanwhile
            return False
        return is_new

    def _rows(self) -> QuerySet[SimulatedState]:
        return SimulatedState.objects.filter(cluster_id=self._cluster_id)
