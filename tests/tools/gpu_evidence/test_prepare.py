"""What --prepare takes from the locks and from Debian, without either."""

import pytest

from tools.gpu_evidence import prepare as module
from tools.gpu_evidence.extension import LOCK, NAME, BuildError, build_variables, split_lock
from tools.gpu_evidence.prepare import PrepareError, depended, entries, names_of, prepare

SMALL = """absl-py==2.5.1 \\
    --hash=sha256:aa
    # via optax
jax==0.11.2 \\
    --hash=sha256:bb \\
    --hash=sha256:cc
jax-cuda13-plugin==0.11.2 ; sys_platform == 'linux' \\
    --hash=sha256:dd
"""
OPTIONS = {"sm": 90, "slim": False, "python": "3.12", "with_jax": False, "text": None}


def test_an_entry_of_a_lock_is_taken_with_its_hashes():
    others, extension = split_lock(SMALL, "jax")
    assert extension == "jax==0.11.2 \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n"
    assert names_of(others) == {"absl-py", "jax-cuda13-plugin"}
    assert names_of(SMALL) == {"absl-py", "jax", "jax-cuda13-plugin"}
    assert names_of(entries(SMALL, {"jax", "absl-py"})) == {"absl-py", "jax"}
    with pytest.raises(BuildError, match="has no entry of jaxlib"):
        split_lock(SMALL, "jaxlib")


def test_a_package_with_an_entry_for_each_python_is_taken_with_both():
    forked = (
        "numpy==2.4 ; python_version < '3.12' \\\n    --hash=sha256:aa\nnumpy==2.5 ; "
        "python_version >= '3.12' \\\n    --hash=sha256:bb\n"
    )
    assert split_lock(forked, "numpy") == ("", forked)


def test_the_lock_pins_the_extensions_source_with_its_hash():
    """A second file of it would be a wheel, which is built here."""
    _, extension = split_lock(LOCK.read_text(encoding="utf-8"), NAME)
    assert extension.startswith(f"{NAME}==2.20.2 ")
    assert extension.count("--hash=sha256:") == 1


def test_the_lock_has_all_that_is_asked_of_it():
    names = names_of(LOCK.read_text(encoding="utf-8"))
    required = {
        module._CORE,
        *module._ENGINE_PACKAGES,
        *module._LIBRARIES,
        *module._THERE,
        "tokenizers",
        "pip",
        "pytest",
        "pyyaml",
    }
    assert required <= names


def test_the_extension_is_built_from_nvidias_packages_and_not_from_a_toolkit(tmp_path):
    variables = build_variables(tmp_path, "90;100")
    assert variables["NVTE_BUILD_USE_NVIDIA_WHEELS"] == "1"
    assert variables["NVTE_CUDA_ARCHS"] == "90;100"
    assert all(part.startswith(str(tmp_path / "nvidia")) for part in variables["CPATH"].split(":"))


@pytest.mark.parametrize(
    ("name", "output", "package"),
    [
        ("linux-doc", "linux-doc\n  Depends: linux-doc-6.1\n", "linux-doc-6.1"),
        (
            "python3-doc",
            "python3-doc\n  Depends: python3.11-doc\n  Suggests: python3\n",
            "python3.11-doc",
        ),
        (
            "erlang-doc",
            "erlang-doc\n  Conflicts: <erlang-doc-html>\n  Depends: libjs-jquery\n",
            "erlang-doc",
        ),
        ("debian-policy", "", "debian-policy"),
    ],
)
def test_a_metapackage_stands_for_the_documentation_of_this_release(name, output, package):
    assert depended(name, output) == package


def test_a_finished_folder_is_not_touched_again(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(PrepareError, match="is prepared already"):
        prepare(tmp_path, **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_text_that_is_not_there_is_refused_before_anything_is_built(tmp_path):
    with pytest.raises(PrepareError, match="does not exist, expected a text file or a folder"):
        prepare(tmp_path / "out", **OPTIONS | {"text": tmp_path / "absent"})
    assert not (tmp_path / "out").exists()
