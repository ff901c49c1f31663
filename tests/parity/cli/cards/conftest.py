"""A bundle whose verdicts were changed."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def changed_bundle(tmp_path: Path) -> Callable[[str], str]:
    """A copy of a bundle in which each verdict is a pass."""

    def changed(bundle: str) -> str:
        path = tmp_path / "changed.zip"
        with zipfile.ZipFile(bundle) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        verdicts = json.loads(members["verdict.json"])
        for document in verdicts["verdicts"]:
            document["verdict"] = "pass"
        members["verdict.json"] = json.dumps(verdicts).encode()
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return str(path)

    return changed
