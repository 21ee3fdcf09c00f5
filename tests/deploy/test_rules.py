"""Prometheus judges the alerts and the dashboard: on an idle console, and with what each alert is for."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from fleetui.broker import PERIODIC, UPDATES
from fleetui.task_queue import record_end, record_heartbeat
from tests.deploy.tools import program
from tests.runtime.processes import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
TOKEN = "a-token-of-the-monitoring-with-32-characters"
CASES = Path(__file__).with_name("alerts.yaml")


def idle_series(settings: Settings, **labels: str) -> list[dict[str, str]]:
    """Return the series of a console on which nothing happens, for an hour, as promtool reads them."""
    now = datetime.now(UTC)
    record_heartbeat((UPDATES, PERIODIC), now=now)
    record_end("swept_at", now=now)
    record_end("observed_at", now=now)
    settings.METRICS_TOKEN = TOKEN
    client = Client(headers={"authorization": f"Bearer {TOKEN}"})
    text = client.get("/metrics").content.decode()
    written = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            every = {**sample.labels, "job": "fleetui", **labels}
            selector = ", ".join(f"{name}={value!r}" for name, value in every.items())
            series = f"{sample.name}{{{selector}}}"
            written.append({"series": series, "values": f"{sample.value:g}+0x60"})
    return written


def judge(folder: Path, tests: list[dict[str, Any]]) -> None:
    """Run unit tests of rules with promtool."""
    document = {
        "rule_files": [str(MONITORING / "alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": tests,
    }
    path = folder / "tests.yaml"
    path.write_text(yaml.safe_dump(document))
    run = subprocess.run(
        [program("promtool"), "test", "rules", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_an_idle_console_has_data_in_every_panel_and_no_alert(
    settings: Settings, tmp_path: Path
) -> None:
    series = [
        *idle_series(settings, instance="10.0.0.1:8000", pod="web-1"),
        *idle_series(settings, instance="10.0.0.2:8000", pod="web-2"),
    ]
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]
    alerts = [rule["alert"] for rule in rules["rules"]]
    yes = [{"labels": "{}", "value": 1}]
    queries = [
        {
            "expr": f"count({expression}) > bool 0",
            "eval_time": "30m",
            "exp_samples": yes,
        }
        for expression in expressions
    ]
    quiet = [
        {"alertname": name, "eval_time": "50m", "exp_alerts": []} for name in alerts
    ]

    judge(
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": queries,
                "alert_rule_test": quiet,
            }
        ],
    )


def test_every_alert_fires_once_for_all_web_processes(tmp_path: Path) -> None:
    cases = yaml.safe_load(CASES.read_text())
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]
    texts = {rule["alert"]: rule for rule in rules["rules"]}
    tests = []
    for name, case in cases.items():
        series = [
            {
                "series": f'{one[:-1]}, job="fleetui", instance="{pod}"}}',
                "values": values,
            }
            for one, values in case["series"].items()
            for pod in case.get("instances", ["a", "b"])
        ]
        expected = {
            "exp_labels": {**texts[name]["labels"], **case["labels"]},
            "exp_annotations": {**texts[name]["annotations"], **case["annotations"]},
        }
        tests.append(
            {
                "interval": "1m",
                "input_series": series,
                "alert_rule_test": [
                    {
                        "alertname": name,
                        "eval_time": case["at"],
                        "exp_alerts": [expected],
                    },
                    *(
                        {"alertname": other, "eval_time": case["at"], "exp_alerts": []}
                        for other in case.get("silent", ())
                    ),
                ],
            }
        )

    judge(tmp_path, tests)
    assert cases.keys() == texts.keys()
