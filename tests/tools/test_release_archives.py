"""What the wheel and the source distribution may hold."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from parity.extras import PACKAGES
from server.settings import CHECKOUT
from tests.built import build
from tools.release_archives import archive_problems

PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def changed(built, tmp_path):
    """A function that copies the wheel with some files put in and some left out."""

    def change(added=(), left_out=()):
        path = tmp_path / built.wheel.name
        with zipfile.ZipFile(built.wheel) as before, zipfile.ZipFile(path, "w") as after:
            for name in before.namelist():
                if name not in left_out:
                    after.writestr(name, before.read(name))
            for name, text in dict(added).items():
                after.writestr(name, text)
        return path

    return change


def test_what_is_built_from_this_checkout_may_go(built):
    assert archive_problems(built.wheel, built.sdist, PROJECT) == []


@pytest.mark.parametrize(
    "imported",
    [
        "import server.settings",
        "from training import rules",
        "from tools.tables import __main__",
        "from parity import no_such_module",
        "import parity.no_such_module",
        "from parity_lab.server import web",
        "import pydantic",
        "import jax",
    ],
)
def test_an_import_that_an_installation_lacks_is_named(changed, built, imported):
    wheel = changed({"parity/added.py": f"def later():\n    {imported}\n"})
    found = archive_problems(wheel, built.sdist, PROJECT)
    assert len(found) == 2  # the source distribution lacks the module, too
    assert "parity.added imports" in found[0]


def test_an_import_of_a_need_an_extra_or_a_host_is_no_problem(changed, built):
    wheel = changed({"parity/added.py": "import numpy, yaml, pyarrow.parquet, pytest, mlflow\n"})
    assert archive_problems(wheel, built.sdist, PROJECT) == [
        f"{built.sdist.name} lacks parity/added.py"
    ]


@pytest.mark.parametrize("name", ["tests/conftest.py", "server/app.py", "parity.pth"])
def test_a_file_beside_the_packages_is_named(changed, built, name):
    (problem,) = archive_problems(changed({name: ""}), built.sdist, PROJECT)
    assert f"has {name}" in problem


def test_files_that_are_missing_are_named(changed, built):
    licence = f"parity-{PROJECT['version']}.dist-info/licenses/LICENSE"
    found = archive_problems(changed(left_out=("parity/py.typed", licence)), built.sdist, PROJECT)
    assert [line.partition(" lacks ")[2] for line in found[:2]] == [licence, "parity/py.typed"]


def test_a_source_distribution_with_more_than_the_wheel_is_refused(built, tmp_path):
    root = built.sdist.name.removesuffix(".tar.gz")
    secret = tmp_path / "secret.env"
    secret.write_text("TOKEN=1")
    sdist = tmp_path / built.sdist.name
    with tarfile.open(built.sdist) as whole, tarfile.open(sdist, "w:gz") as archive:
        for member in whole:
            archive.addfile(member, whole.extractfile(member) if member.isfile() else None)
        archive.add(secret, f"{root}/{secret.name}")
    (problem,) = archive_problems(built.wheel, sdist, PROJECT)
    assert "has secret.env" in problem


def test_another_version_than_that_of_the_checkout_is_refused(built):
    (problem,) = archive_problems(built.wheel, built.sdist, {**PROJECT, "version": "9.9.9"})
    assert "expected 9.9.9" in problem


def test_the_command_checks_the_built_files(built, tmp_path):
    def check(*files):
        return subprocess.run(
            [sys.executable, "-m", "tools.release_check", "v9.9.9", *map(str, files)],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )

    assert "expected one .whl and one .tar.gz" in check(built.wheel).stderr
    other = tmp_path / "other.zip"
    shutil.copy(built.wheel, other)
    assert "other.zip" in check(*built, other).stderr
    assert ".whl" not in check(*built).stderr


def test_an_error_names_the_packages_of_each_extra():
    extras = PROJECT["optional-dependencies"]
    assert {
        name: sorted(need.partition(">")[0] for need in needs) for name, needs in extras.items()
    } == {name: sorted(packages) for name, packages in PACKAGES.items()}


def test_classifiers_name_each_python_that_ci_tries():
    workflow = (CHECKOUT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (tried,) = (line for line in workflow.splitlines() if line.strip().startswith("python: ["))
    named = [
        line.rpartition(" ")[2]
        for line in PROJECT["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    ]
    assert named == [word.strip(' "') for word in tried.partition("[")[2].rstrip("]").split(",")]
    assert Path(CHECKOUT / PROJECT["license-files"][0]).is_file()
