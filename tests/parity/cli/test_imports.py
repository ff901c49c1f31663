"""The gate is installed without scipy (action.yml, locks/gate.lock), so it must not import it."""

import subprocess
import sys

from server.settings import CHECKOUT


def test_the_gate_imports_no_scipy():
    script = "import sys; sys.modules['scipy'] = None; import parity.cli.gate"
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_its_lock_has_none_either():
    assert "scipy" not in (CHECKOUT / "locks" / "gate.lock").read_text()
    assert "\nscipy==" in (CHECKOUT / "locks" / "judge.lock").read_text()
