"""What is imported when: a script that uses one part of the package does not pay for the others.

Times are in benchmarks/imports.py. Here are the modules, which do not depend on the machine's
speed.
"""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "scipy", "httpx2", "rich", "typer", "yaml", "matplotlib", "pandas")
IMPORTS = {
    "import parity; parity.Policy(margin='1%'); import parity.pytest_plugin": (),
    "import parity; parity.Run": ("numpy", "httpx2"),
    "from parity.cli.application import run; run(['--help'])": ("typer",),
    "import parity.cli.compare.command; import parity; parity.compare": (
        "numpy",
        "rich",
        "typer",
        "yaml",
    ),
}


@pytest.mark.parametrize("line", IMPORTS)
def test_a_part_of_the_package_imports_only_what_it_needs(line):
    code = (
        f"import sys\n{line}\nprint(*(name for name in {HEAVY} if name in sys.modules), "
        "file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stderr.split("\n")[-2].split()) == set(IMPORTS[line])
