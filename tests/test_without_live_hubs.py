"""Without the app of live hubs the console has everything else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.source_code import ROOT

_VISIT = """
import sys
import django
django.setup()
from django.conf import settings
from django.core.management import call_command, get_commands
from django.test import Client
from django.contrib.auth.models import User
from fleetui.hub_scope import LOCAL_HUB, in_hub

settings.ALLOWED_HOSTS = ["*"]
call_command("check")
call_command("load_demo", "4")
root = User.objects.create_superuser("root")
client = Client()
client.force_login(root)
for address in (
    "/",
    "/clusters/",
    "/placements/",
    "/rollouts/",
    "/inbox/",
    "/activity/",
    "/api/v1/placements",
    "/api/v1/overview",
    "/metrics",
    "/api/schema",
    "/admin/",
):
    answer = client.get(address)
    assert answer.status_code in (200, 401), (address, answer.status_code)
    assert b'href="/hubs/"' not in answer.getvalue(), address
with in_hub(LOCAL_HUB):
    from clusters.models import MemberCluster
    from placements.models import Placement
    cluster, placement = MemberCluster.objects.first(), Placement.objects.first()
    assert client.get(f"/clusters/{cluster.name}/").status_code == 200
    assert client.get(f"/placements/{placement.full_name}/").status_code == 200
assert client.get("/hubs/").status_code == 404
assert client.get("/hubs/paris/clusters/").status_code == 404
assert "watch_hubs" not in get_commands()
print(sorted(name for name in sys.modules if name.startswith("placements.hubs")))
"""


def test_the_console_runs_without_the_wing(
    tmp_path: Path, collected_static: Path, empty_hub: Path
) -> None:
    shutil.copy2(empty_hub, tmp_path / "fleetui.sqlite3")
    variables = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "fleetui.settings",
        "FLEETUI_LIVE_HUBS": "0",
        "FLEETUI_VAR_DIR": str(tmp_path),
        "FLEETUI_STATIC_DIR": str(collected_static),
        "DATABASE_URL": "",
    }
    variables.pop("DATABASE_URL")

    done = subprocess.run(
        [sys.executable, "-c", _VISIT],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("[]")
