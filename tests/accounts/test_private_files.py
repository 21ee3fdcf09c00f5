"""Files in `var/` are for their owner only."""

import os
from pathlib import Path

from pytest_django import Settings

from fleetui.private_files import check_private_files, close_to_others


def test_what_is_open_is_reported_and_closed(
    tmp_path: Path, settings: Settings
) -> None:
    settings.VAR_DIR = tmp_path
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "message").write_text("")
    (tmp_path / "link").symlink_to("/etc/hostname")
    # The modes are set afterwards, since the umask of the shell that runs the tests may be 077.
    (tmp_path / "queue" / "message").chmod(0o644)
    (tmp_path / "queue").chmod(0o755)
    tmp_path.chmod(0o755)

    before = check_private_files()
    left = close_to_others(tmp_path)

    assert [message.id for message in before] == ["fleetui.W001"]
    assert before[0].msg.startswith("3 files and folders")
    assert (left, check_private_files()) == ([], [])
    assert (tmp_path / "queue" / "message").stat().st_mode & 0o777 == 0o600
    assert os.access("/etc/hostname", os.R_OK)
