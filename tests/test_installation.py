"""The wheel and the source distribution, installed in empty environments as a user does it: with
pip on each Python, and with uv. Needs a package index; `make test-install` runs it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from server.settings import CHECKOUT
from tests.built import build

UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
PYTHONS = ("3.11", "3.12", "3.13")
PYENV_FOLDERS = sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
COMPARE = (
    *("compare", "fp8.csv", "mxfp8.csv", "--recipe", "fp8=fp8_current", "--recipe", "mxfp8=mxfp8"),
    *("--planned-steps", "1500", "--margin", "1%"),
)
# Whoever calls them has what they import.
PLUG_INS = {
    "parity.integrations.huggingface",
    "parity.integrations.lightning",
    "parity.pytest_plugin",
}
IMPORT_ALL = """
import importlib, pkgutil, sys
for package in ("parity", "parity_lab"):
    root = importlib.import_module(package)
    for found in pkgutil.walk_packages(root.__path__, f"{package}."):
        if found.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except ImportError:
            print(found.name)
"""

pytestmark = pytest.mark.skipif(
    os.environ.get("PARITY_TEST_INSTALL") != "1",
    reason="installs from a package index: make test-install runs it",
)


def run(*words: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder that is no checkout."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PARITY_", "PYTHON", "VIRTUAL_ENV"))
    }
    return subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def installed(*words: str | Path, folder: Path, **variables: str) -> str:
    """Run a command that has to end well; what it prints."""
    done = run(*words, folder=folder, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def curves(tmp_path):
    """A folder with two runs and nothing else."""
    folder = tmp_path / "curves"
    folder.mkdir()
    for name in ("fp8", "mxfp8"):
        shutil.copy(CHECKOUT / "examples" / "curves" / f"{name}.csv", folder)
    return folder


@pytest.fixture
def environment(tmp_path):
    """A function that makes an empty environment of a Python; skips where there is none."""

    def make(python: str) -> Path:
        places = os.pathsep.join([os.environ["PATH"], *map(str, PYENV_FOLDERS)])
        words = (UV, "python", "find", "--no-python-downloads", python)
        found = run(*words, folder=tmp_path, PATH=places)
        if found.returncode:
            assert "CI" not in os.environ, found.stderr
            pytest.skip(f"no Python {python} here")
        installed(found.stdout.strip(), "-m", "venv", tmp_path / "venv", folder=tmp_path)
        return tmp_path / "venv" / "bin"

    return make


@pytest.mark.parametrize("python", PYTHONS)
def test_pip_installs_the_wheel_which_gives_a_verdict(python, built, environment, curves):
    bin_folder = environment(python)
    installed(bin_folder / "pip", "install", "-q", built.wheel, folder=curves)
    assert "PASS" in installed(bin_folder / "parity", *COMPARE, folder=curves)
    files = ("--html", "page.html", "--bundle", "evidence.zip")
    installed(bin_folder / "parity", *COMPARE, *files, folder=curves)
    page = (curves / "page.html").read_text(encoding="utf-8")
    assert 'class="pic' in page  # the wheel has the style and the script of a page
    assert "parity.card/1" in installed(
        bin_folder / "parity", "card", "evidence.zip", folder=curves
    )
    assert '"$schema"' in installed(bin_folder / "parity", "schema", "report", folder=curves)
    assert "parity compare" in installed(bin_folder / "parity", "skill", folder=curves)
    failed = installed(bin_folder / "python", "-c", IMPORT_ALL, folder=curves).split()
    assert set(failed) == PLUG_INS
    (curves / "run.parquet").write_bytes(b"PAR1")
    refused = run(bin_folder / "parity", "compare", "run.parquet", "fp8.csv", folder=curves)
    assert refused.returncode == 2
    assert 'pip install pyarrow (the extra "readers")' in refused.stderr


def test_pip_installs_the_source_distribution_with_an_extra(built, environment, curves):
    bin_folder = environment("3.12")
    installed(bin_folder / "pip", "install", "-q", f"{built.sdist}[readers]", folder=curves)
    program = (
        "import pyarrow.csv, pyarrow.parquet\n"
        "for name in ('fp8', 'mxfp8'):\n"
        "    table = pyarrow.csv.read_csv(f'{name}.csv')\n"
        "    pyarrow.parquet.write_table(table, f'{name}.parquet')"
    )
    installed(bin_folder / "python", "-c", program, folder=curves)
    words = [word.replace(".csv", ".parquet") for word in COMPARE]
    assert "PASS" in installed(bin_folder / "parity", *words, folder=curves)


def test_uv_installs_the_wheel_as_a_tool(built, curves, tmp_path):
    places = {
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_PYTHON_DOWNLOADS": "never",
    }
    installed(UV, "tool", "install", built.wheel, folder=curves, **places)
    assert "PASS" in installed(tmp_path / "bin" / "parity", *COMPARE, folder=curves)


def test_uvx_runs_the_wheel(built, curves):
    words = (UV, "tool", "run", "--from", built.wheel, "parity", *COMPARE)
    assert "PASS" in installed(*words, folder=curves, UV_PYTHON_DOWNLOADS="never")
