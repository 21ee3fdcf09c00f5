"""The clusters of a decision to take away: those that the filters of the page leave, in its order."""

from django.http import HttpResponse, JsonResponse

from placements.explain.document import outcome_document
from placements.explain.tables import outcome_csv, rows_of, written
from placements.queries.records import AnyDecision, decision_of
from placements.scheduling.decision import Decision
from placements.views.decided_clusters import ClusterList

FORMATS = ("csv", "json")


def download(row: AnyDecision, wanted: ClusterList, form: str) -> HttpResponse:
    """Answer all rows as a file; unfiltered also what is not in the fleet."""
    found = decision_of(row)
    if form == "json":
        answer: HttpResponse = JsonResponse({"items": list(map(outcome_document, wanted.table.found))})
    else:
        answer = HttpResponse(_csv(found, wanted), content_type="text/csv; charset=utf-8")
    name = f"{row.record.decision_id[:10]}.{form}"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _csv(decision: Decision, wanted: ClusterList) -> str:
    if wanted.is_filtered or wanted.table.chosen:
        return written(rows_of(decision, wanted.table.found))
    return outcome_csv(decision)
