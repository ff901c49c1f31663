"""The text of the demo: the same everywhere, with its licence, or refused."""

import hashlib

import pytest
import yaml

from server.settings import CHECKOUT
from training.rules import SpecError
from training.spec import Data
from training.trainer import data, parity_docs


def test_the_text_is_the_one_that_its_readme_describes():
    text = parity_docs.read()
    readme = (parity_docs.TEXT.parent / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(text).hexdigest() == parity_docs.DIGEST
    assert all(
        fact in readme for fact in (parity_docs.DIGEST, f"{len(text):,} bytes", "Apache-2.0")
    )
    assert text.decode().startswith("# ")


def test_the_corpus_is_every_byte_of_it():
    text = parity_docs.read()
    corpus = data.load(Data(source="parity_docs", sequence_length=128, batch_size=8))
    assert bytes(corpus.train) + bytes(corpus.validation) == text
    assert corpus.description.startswith(
        f"a snapshot of this project's documentation: {len(text):,} byte tokens"
    )
    assert corpus.largest < 256


@pytest.mark.parametrize("name", ["demo.yaml", "demo-quick.yaml"])
def test_the_demos_train_on_it(name):
    assert (
        yaml.safe_load((CHECKOUT / "examples" / name).read_text(encoding="utf-8"))["job"]["data"][
            "source"
        ]
        == "parity_docs"
    )


def test_it_takes_no_path():
    with pytest.raises(SpecError, match="no path for source parity_docs"):
        Data(source="parity_docs", path="/data/text")


@pytest.mark.parametrize("text", [b"another text", None])
def test_another_text_or_none_is_refused_with_both_digests(tmp_path, monkeypatch, text):
    file = tmp_path / "parity_docs.txt"
    if text is not None:
        file.write_bytes(text)
    monkeypatch.setattr(parity_docs, "TEXT", file)
    with pytest.raises(parity_docs.DataChangedError) as refused:
        parity_docs.read()
    found = hashlib.sha256(text or b"").hexdigest()
    assert all(part in str(refused.value) for part in (str(file), found, parity_docs.DIGEST))
