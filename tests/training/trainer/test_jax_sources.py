"""The text of the demo: the sources of the pinned jax, the same everywhere or refused."""

import hashlib
import re
from importlib.metadata import PathDistribution, distribution

import pytest
import yaml

from server.settings import CHECKOUT
from training.spec import Data
from training.trainer import data, jax_sources


def test_the_text_has_the_digest_that_the_readme_names():
    text, files = jax_sources.read()
    assert (len(text), files) == (10_728_805, 559)
    assert jax_sources.DIGEST in (CHECKOUT / "README.md").read_text(encoding="utf-8")
    corpus = data.load(Data(source="jax_sources", sequence_length=128, batch_size=8))
    assert hashlib.sha256(text).hexdigest() == jax_sources.DIGEST
    assert bytes(corpus.train) + bytes(corpus.validation) == text
    assert corpus.description.startswith("the sources of jax 0.10.2, 559 files: 10,728,805 byte tokens")


@pytest.mark.parametrize("lock", ["standalone", "worker"])
def test_the_locks_pin_that_jax(lock):
    assert f"\njax=={jax_sources.JAX_VERSION} " in (CHECKOUT / "locks" / f"{lock}.lock").read_text(encoding="utf-8")


def test_the_wheel_is_the_same_for_every_python():
    wheel = distribution("jax").read_text("WHEEL")
    assert re.findall(r"^Tag: (.+)$", wheel, re.MULTILINE) == ["py3-none-any"]


@pytest.mark.parametrize("name", ["demo.yaml", "demo-quick.yaml"])
def test_the_demos_train_on_it(name):
    assert yaml.safe_load((CHECKOUT / "examples" / name).read_text(encoding="utf-8"))["job"]["data"]["source"] == "jax_sources"


def test_another_text_is_refused_with_both_digests(tmp_path, monkeypatch):
    folder = tmp_path / "jax-0.11.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.11.0\n")
    (folder / "RECORD").write_text("jax/core.py,,\njax/_src/internal_test_util/data.py,,\n")
    for name in ("jax/core.py", "jax/_src/internal_test_util/data.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("pass\n")
    monkeypatch.setattr(jax_sources, "distribution", lambda _: PathDistribution(folder))
    with pytest.raises(jax_sources.DataChangedError) as refused:
        jax_sources.read()
    of_core_alone = hashlib.sha256(b"pass\n").hexdigest()
    assert all(part in str(refused.value) for part in ("jax 0.11.0", of_core_alone, jax_sources.DIGEST, jax_sources.JAX_VERSION))
