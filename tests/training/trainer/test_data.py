import hashlib
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from training.arithmetic import random_bits
from training.spec import Data
from training.trainer.data import (
    DataNotFoundError,
    DataNotTokensError,
    DataTooSmallError,
    VocabularyTooSmallError,
    batches,
    check_vocabulary,
    load,
    validation_batches,
)

TEXT = bytes(range(97, 123)) * 40


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_bytes(TEXT)
    return Data(
        source="text",
        path=str(tmp_path / "text.txt"),
        sequence_length=16,
        batch_size=4,
        validation_fraction=0.25,
    )


def test_a_file_is_split_and_digested(text):
    corpus = load(text)
    assert bytes(corpus.train) + bytes(corpus.validation) == TEXT
    assert len(corpus.validation) == len(TEXT) // 4
    assert corpus.digest == hashlib.sha256(b"uint8 1040\n" + TEXT).hexdigest()
    assert "1,040 byte tokens" in corpus.description


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("b/2.txt", "a.txt", "b/1.txt"):
        (tmp_path / name).write_text(name * 20)
    corpus = load(
        Data(source="text", path=str(tmp_path), sequence_length=16, validation_fraction=0)
    )
    assert bytes(corpus.train).decode() == "a.txt" * 20 + "b/1.txt" * 20 + "b/2.txt" * 20


def test_the_standard_library_is_sorted_and_holds_no_tests():
    corpus = load(Data())
    assert corpus.digest == load(Data()).digest
    assert bytes(corpus.train[:400]).decode().startswith('"""')  # __future__.py comes first
    assert len(corpus.train) > 5_000_000
    assert bytes(corpus.train).find(b"class _TestProcess(BaseTestCase") < 0  # lives in test/


def test_what_is_not_there_is_named(text, tmp_path):
    with pytest.raises(
        DataNotFoundError, match=r"data\.path is .*nowhere.*copy the data"
    ) as raised:
        load(replace(text, path=str(tmp_path / "nowhere")))
    assert raised.value.code == "DATA_NOT_FOUND"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataNotFoundError, match="it is empty"):
        load(replace(text, path=str(tmp_path / "empty")))


def test_a_text_shorter_than_a_sequence_is_refused(text):
    with pytest.raises(
        DataTooSmallError, match="training part has 780 tokens, expected at least 1002"
    ) as raised:
        load(replace(text, sequence_length=1000))
    assert raised.value.code == "DATA_TOO_SMALL"
    with pytest.raises(DataTooSmallError, match="validation part has 10 tokens"):
        load(replace(text, validation_fraction=0.01))


def test_a_vocabulary_must_hold_every_token(text):
    check_vocabulary(load(text), 123)
    with pytest.raises(VocabularyTooSmallError, match="vocab_size is 122, expected more than 122"):
        check_vocabulary(load(text), 122)


CUT = Data(source="text", path="given", sequence_length=16, batch_size=4)


def test_a_batch_is_a_pure_function_of_seed_and_step():
    train = np.arange(200, dtype=np.uint8)
    first = batches(train, CUT, 1, 5, 3)
    assert first.shape == (3, 4, 17)
    assert first.dtype == np.int32
    np.testing.assert_array_equal(first[2], batches(train, CUT, 1, 7, 1)[0])
    np.testing.assert_array_equal(np.diff(first, axis=-1), 1)  # consecutive tokens of the corpus
    assert np.any(first != batches(train, CUT, 1, 6, 3))
    assert np.any(first != batches(train, CUT, 2, 5, 3))


def test_batches_start_where_the_hash_says():
    train = np.arange(200, dtype=np.uint8)
    for step in (0, 1, 2**31 - 1):
        key = random_bits.fold(jnp.uint32(2**32 - 1), jnp.int32(step))
        starts = random_bits.finalize(
            jnp.arange(4, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9) + key
        ) % jnp.uint32(200 - 16)
        np.testing.assert_array_equal(
            batches(train, CUT, 2**32 - 1, step, 1)[0, :, 0], np.asarray(starts)
        )


def test_batches_reach_the_whole_corpus():
    train = np.arange(60, dtype=np.uint8)
    starts = batches(train, replace(CUT, batch_size=16), 0, 0, 40)[..., 0]
    assert set(starts.ravel().tolist()) == set(range(60 - 16))


def test_validation_batches_are_even_and_complete(text):
    corpus = load(text)
    rows = validation_batches(corpus, text)
    assert rows.shape[1:] == (4, 17)
    flat = rows.reshape(-1, 17)
    np.testing.assert_array_equal(flat[0], corpus.validation[:17])
    np.testing.assert_array_equal(flat[-1], corpus.validation[-17:])


@pytest.mark.parametrize("largest", [200, 50_000, 130_000])
def test_a_token_array_stays_on_disk_and_its_digest_does_not_depend_on_its_type(tmp_path, largest):
    ids = np.random.default_rng(0).integers(0, largest + 1, 400)
    ids[7] = largest
    digests = set()
    for dtype in (np.int64, np.uint32, ">i4"):
        np.save(tmp_path / "ids.npy", ids.astype(dtype))
        corpus = load(
            Data(
                source="tokens",
                path=str(tmp_path / "ids.npy"),
                sequence_length=16,
                validation_fraction=0,
            )
        )
        assert isinstance(corpus.train, np.memmap)
        assert corpus.largest == largest
        np.testing.assert_array_equal(corpus.train, ids)
        np.testing.assert_array_equal(batches(corpus.train, CUT, 0, 0, 1)[0, :, 0] < 2**31, True)
        digests.add(corpus.digest)
        with pytest.raises(VocabularyTooSmallError):
            check_vocabulary(corpus, largest)
    assert len(digests) == 1


def test_a_long_corpus_is_read_in_pieces(text, monkeypatch):
    whole = load(text)
    monkeypatch.setattr("training.trainer.data._CHUNK", 7)
    assert (load(text).digest, load(text).largest) == (whole.digest, whole.largest)
    assert whole.largest == 122


def test_bytes_that_two_corpora_have_in_common_are_not_one_digest(tmp_path):
    """A `tokens` file that was written with a wrong type and then corrected at its path is other
    data.
    """
    data = Data(
        source="tokens", path=str(tmp_path / "ids.npy"), sequence_length=16, validation_fraction=0
    )
    ids = np.random.default_rng(0).integers(0, 256, 400, dtype=np.uint8)
    np.save(data.path, ids)
    wrong = load(data).digest
    np.save(data.path, ids.view("<u2"))
    assert load(data).digest != wrong
    np.save(data.path, ids.astype(np.int64))
    assert load(data).digest == wrong, "the same tokens in another type"


def test_a_bin_file_is_little_endian_uint16(tmp_path):
    (tmp_path / "ids.bin").write_bytes(b"\x01\x02" * 200)
    corpus = load(
        Data(
            source="tokens",
            path=str(tmp_path / "ids.bin"),
            sequence_length=16,
            validation_fraction=0,
        )
    )
    np.testing.assert_array_equal(corpus.train, 513)


@pytest.mark.parametrize(
    ("dtype", "vocab_size", "expected"),
    [
        (None, 65_536, "<u2"),
        (None, 65_537, "<u4"),
        ("uint16", 70_000, "<u2"),
        ("uint32", 256, "<u4"),
    ],
)
def test_a_bin_file_has_the_declared_type_or_that_of_the_vocabulary(
    tmp_path, dtype, vocab_size, expected
):
    ids = np.random.default_rng(0).integers(0, 256, 600)
    (tmp_path / "ids.bin").write_bytes(ids.astype(expected).tobytes())
    data = Data(
        source="tokens",
        path=str(tmp_path / "ids.bin"),
        sequence_length=16,
        validation_fraction=0,
        dtype=dtype,
    )
    corpus = load(data, vocab_size)
    assert isinstance(corpus.train, np.memmap)
    np.testing.assert_array_equal(corpus.train, ids)


def test_an_id_beyond_the_vocabulary_is_named_with_its_file_and_place(tmp_path, monkeypatch):
    monkeypatch.setattr("training.trainer.data._CHUNK", 100)
    ids = np.full(1000, 7, "<u4")
    ids[[950, 990]] = 70_000, 200_000
    (tmp_path / "ids.bin").write_bytes(ids.tobytes())
    data = Data(
        source="tokens",
        path=str(tmp_path / "ids.bin"),
        sequence_length=16,
        validation_fraction=0.25,
        dtype="uint32",
    )
    with pytest.raises(VocabularyTooSmallError, match=r"ids\.bin.* 70000 at token 950,"):
        check_vocabulary(load(data), 70_000)
    with pytest.raises(VocabularyTooSmallError, match=r"200000 at token 990,"):
        check_vocabulary(load(data), 70_001)
    (tmp_path / "ids.bin").write_bytes(ids.tobytes() + b"x")
    with pytest.raises(DataNotTokensError, match="little-endian uint32"):
        load(data)


def test_a_token_array_that_is_none_is_refused(tmp_path):
    np.save(tmp_path / "float.npy", np.zeros(400))
    np.save(tmp_path / "square.npy", np.zeros((20, 20), np.int64))
    (tmp_path / "text.npy").write_text("not an array")
    np.save(tmp_path / "negative.npy", np.arange(-1, 400))
    (tmp_path / "odd.bin").write_bytes(b"123")
    (tmp_path / "tokenizer.json").write_text("{}")
    for name, message in (
        ("negative.npy", "of at least 0, found -1 at token 0"),
        ("odd.bin", "little-endian uint16"),
        ("tokenizer.json", "no tokenizer"),
        ("float.npy", "found float64"),
        ("square.npy", r"of shape \(20, 20\)"),
        ("text.npy", "expected a NumPy"),
    ):
        with pytest.raises(DataNotTokensError, match=message):
            load(Data(source="tokens", path=str(tmp_path / name), sequence_length=16))
    with pytest.raises(DataNotFoundError, match="a file of token ids"):
        load(Data(source="tokens", path=str(tmp_path / "nowhere.npy")))
