"""The short form of the fault matrix, on PostgreSQL; `make test-faults` runs the long one on both
databases.
"""

import subprocess
import sys
from pathlib import Path


def test_three_faults_lose_nothing():
    command = [
        sys.executable,
        str(Path(__file__).with_name("matrix.py")),
        "--injections",
        "3",
        "--jobs",
        "1",
        "--pause",
        "0.2",
        "1.5",
    ]
    quick = ["--recipe", "fp8_current", "--steps", "500", "--database", "postgresql"]
    ended = subprocess.run(
        [*command, *quick], check=False, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "faults 3," in ended.stdout
    assert "0 lost, 0 duplicated, 0 stuck, 0 different" in ended.stdout
