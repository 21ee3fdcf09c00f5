"""Probes and metrics, and that the alerts and the dashboard in `deploy/monitoring/` use existing metrics."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from pytest_django import DjangoAssertNumQueries, Settings

from fleetui import monitoring
from fleetui.broker import PERIODIC, UPDATES
from fleetui.documentation import documentation_page
from fleetui.models import WorkerHeartbeat
from fleetui.task_queue import SILENT_AFTER, record_end, record_heartbeat
from placements.models import Placement
from tests.live_hubs import live_hub, move_rows_to
from tests.rows import joined

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
TOKEN = "a-token-of-the-monitoring-with-32-characters"
pytestmark = pytest.mark.django_db
SELECTOR = re.compile(r"(fleetui_\w+)(\{[^}]*\}|)")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def ready(query: str = "") -> tuple[int, str]:
    response = Client().get(f"/readyz{query}")
    return response.status_code, response.content.decode()


@pytest.mark.parametrize("path", ["/healthz", "/version"])
def test_a_process_responds_without_database_and_to_any_host(
    path: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        response = Client(headers={"host": "10.1.2.3:8000"}).get(path)

    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    assert Client().post(path).status_code == 405


def test_ready_while_workers_send_heartbeats() -> None:
    status, text = ready()
    assert status == 503
    assert "[-]worker failed: no worker has read the queue celery yet\n" in text
    assert ready("?exclude=worker")[0] == 200

    now = datetime.now(UTC)
    record_heartbeat((UPDATES, PERIODIC), now=now)
    assert (
        "[-]sweep failed: no sweep has ended yet: it needs a beat and a worker\n"
        in ready()[1]
    )
    record_end("swept_at", now=now)
    record_end("observed_at", now=now - timedelta(seconds=100))
    status, text = ready()
    assert (status, text) == (
        200,
        "[+]database ok\n[+]disk ok\n[+]migrations ok\n[+]worker ok\n[+]sweep ok: last sweep 0 s ago\n"
        "[+]observation ok: last observation 100 s ago\n[+]broker ok\nreadyz check passed\n",
    )

    WorkerHeartbeat.objects.update(observed_at=now - timedelta(seconds=121))
    status, text = ready()
    words = "[-]observation failed: last observation 121 s ago: it needs a beat and a worker\n"
    assert (status, words in text) == (503, True)
    record_end("observed_at", now=now)

    record_heartbeat((PERIODIC,), now=now - SILENT_AFTER - timedelta(seconds=2))
    assert "no heartbeat of the queue periodic for 42 s" in ready()[1]
    status, text = ready("?exclude=workers")
    assert (status, text) == (
        400,
        "exclude: no check is named 'workers'; the checks are database, disk, migrations, worker, sweep, "
        "observation, broker\n",
    )


def test_not_ready_without_database_broker_or_migrations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise OperationalError("no database at 10.0.0.1")

    with monkeypatch.context() as patch:
        patch.setattr(type(connections["default"]), "cursor", fail)
        status, text = ready("?exclude=migrations")
    assert status == 503
    assert (
        "[-]database failed: the database does not respond\n[+]disk ok\n[-]worker failed"
        in text
    )
    assert "[-]sweep failed: the database does not respond\n" in text
    assert "10.0.0.1" not in text

    with monkeypatch.context() as patch:
        patch.setattr(monitoring, "_migrated", set())
        patch.setattr(
            monitoring.MigrationExecutor, "migration_plan", lambda *_arguments: [1, 2]
        )
        assert "[-]migrations failed: 2 migrations are not applied" in ready()[1]

    with monkeypatch.context() as patch:
        patch.setattr("kombu.Connection.ensure_connection", fail)
        patch.setattr(monitoring, "OperationalError", OperationalError)
        assert "[-]broker failed: the broker does not respond" in ready()[1]


def exposition(client: Client) -> str:
    response = client.get("/metrics")
    assert response.status_code == 200
    return response.content.decode()


def test_metrics_are_for_the_token_and_for_superusers(
    settings: Settings, viewer: Client, operator: Client
) -> None:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    for client in (Client(), viewer, operator, Client(headers=bearer)):
        assert client.get("/metrics").status_code == 401

    settings.METRICS_TOKEN = TOKEN

    assert "fleetui_info" in exposition(Client(headers=bearer))
    assert (
        Client(headers={"authorization": "Bearer another"}).get("/metrics").status_code
        == 401
    )
    assert Client(headers={"authorization": ""}).get("/metrics").status_code == 401
    administrator = Client()
    administrator.force_login(User.objects.create_superuser("root"))
    assert "fleetui_info" in exposition(administrator)


@pytest.mark.nightly
def test_metrics_count_what_the_database_has(
    settings: Settings, web: Placement
) -> None:
    decision = web.decisions.get()
    move_rows_to(live_hub("prod-eu", kind="kubefleet", state="live"))
    joined("quietowl", region="west")
    settings.METRICS_TOKEN = TOKEN
    client = Client(headers={"authorization": f"Bearer {TOKEN}"})
    client.get("/login/")

    families = {
        metric.name: metric
        for metric in text_string_to_metric_families(exposition(client))
    }

    def value(family: str, **labels: str) -> float:
        values = [
            sample.value
            for sample in families[family].samples
            if labels.items() <= sample.labels.items()
        ]
        assert values, (family, labels)
        return sum(values)

    assert value("fleetui_clusters", hub="prod-eu") == 3
    assert value("fleetui_clusters", hub="local") == 1
    assert value("fleetui_placements", hub="prod-eu", state="all") == 1
    assert value("fleetui_placements", hub="local", state="all") == 0
    assert value("fleetui_bindings") == value("fleetui_bindings", hub="prod-eu") == 2
    assert (
        value("fleetui_hub_state", hub="prod-eu", state="live")
        == value("fleetui_hub_state", hub="prod-eu")
        == 1
    )
    assert value("fleetui_decisions") == decision.pk
    assert value("fleetui_work_due", kind="placements") == 0
    assert value("fleetui_http_requests", method="GET", view="login", status="200") >= 1


def selects(name: str, matchers: str, sample: Sample) -> bool:
    """Return whether a selector of Prometheus selects a sample."""
    if sample.name != name:
        return False
    for label, operator, value in MATCHER.findall(matchers):
        pattern = value if "~" in operator else re.escape(value)
        matches = re.fullmatch(pattern, sample.labels.get(label, "")) is not None
        if matches == operator.startswith("!"):
            return False
    return True


def test_a_fresh_console_has_every_series_of_alerts_and_dashboard(
    settings: Settings,
) -> None:
    settings.METRICS_TOKEN = TOKEN
    client = Client(headers={"authorization": f"Bearer {TOKEN}"})
    families = list(text_string_to_metric_families(exposition(client)))
    samples = [sample for family in families for sample in family.samples]
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    expressions = [rule["expr"] for rule in rules["rules"]]
    expressions += [target["expr"] for panel in panels for target in panel["targets"]]
    selectors = {
        found for expression in expressions for found in SELECTOR.findall(expression)
    }

    missing = [
        name + matchers
        for name, matchers in sorted(selectors)
        if not any(selects(name, matchers, sample) for sample in samples)
    ]

    assert len(selectors) > 20
    assert missing == []
    assert [family.name for family in families if not family.samples] == []


def test_every_metric_is_described_and_every_alert_says_what_to_do(
    settings: Settings,
) -> None:
    settings.METRICS_TOKEN = TOKEN
    client = Client(headers={"authorization": f"Bearer {TOKEN}"})
    families = text_string_to_metric_families(exposition(client))
    described = (ROOT / "docs" / "guides" / "monitor.md").read_text()
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]
    links = {
        rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules["rules"]
    }
    page = "https://fleet.example.com/help/documentation/guides/monitor"
    anchors = documentation_page("guides/monitor", prefix="/").html

    assert [name for name in links if f"`{name}`" not in described] == []
    assert {link.partition("#")[0] for link in links.values()} == {page}
    wrong = [
        link
        for link in links.values()
        if f'id="{link.partition("#")[2]}"' not in anchors
    ]
    assert wrong == []
    ours = {family.name for family in families if family.name.startswith("fleetui_")}
    assert [name for name in sorted(ours) if f"`{name}" not in described] == []


@pytest.mark.nightly
def test_web_processes_share_what_they_counted(tmp_path: Path) -> None:
    variables = monitoring.shared_metrics(tmp_path / "metrics")
    variables |= {
        "DJANGO_SETTINGS_MODULE": "fleetui.settings",
        "FLEETUI_VAR_DIR": str(tmp_path),
    }
    start = "import django; django.setup(); from fleetui.monitoring import *; "
    count = start + "REQUESTS.labels('GET', 'login', '200').inc()"
    show = start + (
        "from prometheus_client import generate_latest; print(generate_latest(http_registry()).decode())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=variables,
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        for code in (count, count, show)
    ]

    assert (
        'fleetui_http_requests_total{method="GET",status="200",view="login"} 2.0'
        in runs[-1].stdout
    )
    monitoring.shared_metrics(tmp_path / "metrics")
    assert list((tmp_path / "metrics").glob("*.db")) == []
