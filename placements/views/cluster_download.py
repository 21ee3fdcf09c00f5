"""The list of clusters to take away, with the filters of the page."""

import csv
import io
from collections.abc import Iterator

from django.db.models import QuerySet
from django.http import HttpResponse, JsonResponse

from clusters.models import MemberCluster
from placements.queries.cluster_list import with_counts

FORMATS = ("csv", "json")
_COLUMNS = ("name", "state", "reason", "labels", "taints", "heartbeat", "placements", "stalePicks")
Row = dict[str, object]


def download(rows: QuerySet[MemberCluster], form: str) -> HttpResponse:
    """Answer all rows as a file."""
    found = _rows(with_counts(rows))
    answer = JsonResponse({"items": list(found)}) if form == "json" else _csv(found)
    answer["Content-Disposition"] = f'attachment; filename="clusters.{form}"'
    return answer


def _rows(rows: QuerySet[MemberCluster]) -> Iterator[Row]:
    columns = ("name", "how", "verdict_reason", "document", "heartbeat_at", "placed", "stale_picks")
    for name, how, reason, document, beat, placed, stale in rows.order_by("name").values_list(*columns):
        yield {
            "name": name,
            "state": how,
            "reason": reason,
            "labels": document["metadata"].get("labels") or {},
            "taints": document["spec"].get("taints") or [],
            "heartbeat": beat.isoformat() if beat else None,
            "placements": placed,
            "stalePicks": stale,
        }


def _csv(rows: Iterator[Row]) -> HttpResponse:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_COLUMNS)
    writer.writerows([_plain(row[column]) for column in _COLUMNS] for row in rows)
    return HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={one}" for key, one in sorted(value.items()))
    if isinstance(value, list):
        return " ".join(
            f"{one['key']}{'=' + one['value'] if one.get('value') else ''}:{one['effect']}" for one in value
        )
    return "" if value is None else str(value)
