"""What set-up installs runs nothing of its own."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools import builds


def test_packages_of_npm_run_no_scripts_when_they_are_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "package-lock.json").write_text("{}")
    (tmp_path / "package.json").write_text("{}")
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(builds, "must", lambda _name, command, **_options: commands.append(command))
    monkeypatch.setattr(builds.stamps, "is_current", lambda *_of: False)
    monkeypatch.setattr(builds.stamps, "set_current", lambda *_of: None)
    builds._install_npm("tried", tmp_path)
    (command,) = commands
    assert command[:2] == ("npm", "ci")
    assert "--ignore-scripts" in command
