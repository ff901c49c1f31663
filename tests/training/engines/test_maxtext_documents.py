"""Documents that MaxText cuts: counted by its own Python, and what the counts say of a job."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from tests.parity.cli.schemas import check
from training.engines import maxtext
from training.engines.maxtext_documents import (
    MOST,
    DocumentCounts,
    NotCountedError,
    counted,
    sentences,
)
from training.environment.maxtext_installed import VARIABLE
from training.preflight import __main__ as preflight
from training.spec import Data

COUNTS = DocumentCounts(documents=200, in_all=200, cut=50, tokens=40_000, kept=30_000)

# Writes 30 and 3000 documents of 1, 2, 3, ... words of one letter as Parquet, ArrayRecord and JSON
# lines, and their tokenizers.
WRITE = """
import json, sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import sentencepiece
from array_record.python.array_record_module import ArrayRecordWriter
from maxtext.input_pipeline.protos import example_pb2
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

folder = Path(sys.argv[1])
texts = [" ".join("ab"[at % 2] * (at % 50 + 1)) for at in range(int(sys.argv[2]))]
for part in range(2):
    table = pa.table({"text": texts[part::2], "other": texts[part::2]})
    pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=40)
    writer = ArrayRecordWriter(str(folder / f"part-{part}.array_record"), "group_size:1")
    for text in texts[part::2]:
        example = example_pb2.Example()
        example.features.feature["text"].bytes_list.value.append(text.encode())
        writer.write(example.SerializeToString())
    writer.close()
(folder / "all.jsonl").write_text("".join(json.dumps({"text": text}) + "\\n" for text in texts))
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(texts * 5), model_prefix=str(folder / "spm"), vocab_size=7,
    model_type="char", hard_vocab_limit=False, minloglevel=2,
)
words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(folder / "words")
model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
print(json.dumps([len(model.encode(text)) + 2 for text in texts]))
"""


@pytest.fixture
def spec(spec):
    return replace(spec, data=replace(spec.data, sequence_length=64, batch_size=4))


@pytest.fixture
def playing(environment):
    """A function that gives the environment of a MaxText whose Python counts so."""
    return lambda counts: environment | {"PLAY_COUNTS": json.dumps(counts)}


def _said(spec, **changes):
    return [*sentences(spec, replace(COUNTS, **changes))]


def test_counts_come_from_maxtexts_python(spec, playing):
    assert counted(spec, playing(asdict(COUNTS))) == COUNTS


def test_a_run_notes_at_its_start_what_is_cut(spec, playing, tmp_path):
    def notes_of(recorded=0, **changes):
        notes = []
        place = maxtext.MaxTextPlace(
            folder=tmp_path / "run", slices=(1,), resume_at_most=recorded, stop_after=50
        )
        run = replace(spec, **changes)
        for _ in maxtext.train(run, place, environment=playing(asdict(COUNTS)), note=notes.append):
            pass
        return notes

    assert notes_of() == [" ".join(_said(spec))]
    assert notes_of(replicate=1) == []
    (tmp_path / "run" / "run" / "checkpoints" / "40" / "items").mkdir(parents=True)
    assert notes_of(recorded=41) == []


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"documents": 3}, "gave no counts: .*missing"),
        ([], "gave no counts"),
    ],
)
def test_an_answer_that_is_no_counts_is_no_answer(spec, playing, counts, reason):
    with pytest.raises(NotCountedError, match=reason):
        counted(spec, playing(counts))


def test_data_that_are_not_at_hand_are_not_counted(spec, playing):
    environment = playing(asdict(COUNTS))
    records = replace(spec, maxtext=replace(spec.maxtext, grain_file_type="tfrecord"))
    with pytest.raises(NotCountedError, match="of kind tfrecord"):
        counted(records, environment)
    for path in ("allenai/c4", "gs://bucket/train"):
        with pytest.raises(NotCountedError, match=f"data.path is '{path}', which is no file"):
            counted(replace(spec, data=Data(source="hf", path=path)), environment)


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, "50 of 200 documents to their first 64 tokens: 25 % of the tokens"),
        ({"in_all": 3_000_000}, "50 of 200 documents, a sample of 3,000,000, to their first"),
        ({"in_all": None}, "50 of the first 200 documents to their first 64 tokens: 25 %"),
        ({"kept": 39_996}, "to their first 64 tokens: 0.01 % of the tokens"),
        ({"cut": 0, "kept": 40_000}, "MaxText cuts none of 200 documents: none has more than 64"),
    ],
)
def test_what_is_cut_is_stated_with_its_share(spec, changes, share):
    assert share in _said(spec, **changes)[0]


@pytest.mark.parametrize(
    ("changes", "options", "lasts"),
    [
        # 4 sequences of 64 tokens a step, 85 steps: 21,760 tokens
        ({}, {}, None),
        ({"kept": 21_760}, {}, None),
        ({"kept": 21_759}, {}, 84),
        ({"kept": 10_000}, {"num_epoch": 2}, 78),
        ({"kept": 10_000}, {"num_epoch": 3}, None),
        ({"kept": 10_000, "in_all": 400}, {}, 78),
        ({"kept": 10_000, "in_all": None}, {}, None),
        ({}, {"packing": False}, 50),
    ],
)
def test_data_that_end_before_the_plan_are_stated(spec, changes, options, lasts):
    run = replace(spec, maxtext=replace(spec.maxtext, **options))
    ends = [sentence for sentence in _said(run, **changes) if sentence.startswith("The data last")]
    if lasts is None:
        assert ends == []
    else:
        assert f"about {lasts} of the 85 steps at most" in ends[0]


@pytest.mark.parametrize("counts", [asdict(COUNTS), []])
def test_preflight_counts_the_documents_of_a_job(job, playing, monkeypatch, capsys, counts):
    monkeypatch.setattr(os, "environ", os.environ | playing(counts))
    monkeypatch.setattr(sys, "stdin", _Stdin(json.dumps(job().document())))
    code = preflight.main(["--job", "--json"])
    printed = capsys.readouterr()
    if counts:
        assert code == 0
        assert json.loads(printed.out)["documents"] == counts
        check("document-counts", json.loads(printed.out))
    else:
        assert code == 2
        assert "the documents were not counted: " in printed.err


class _Stdin:
    def __init__(self, text):
        self._text = text

    def read(self):
        return self._text


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")
@pytest.mark.parametrize("number", [30, 3000])
def test_maxtexts_own_python_counts_what_its_pipeline_cuts(spec, tmp_path, number):
    written = subprocess.run(
        [os.environ[VARIABLE], "-c", WRITE, tmp_path, str(number)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"DECOUPLE_GCLOUD": "TRUE", "JAX_PLATFORMS": "cpu"},
    )
    pieces = json.loads(written.stdout.splitlines()[-1])
    assert len(pieces) == number
    with_pieces = {"tokenizer_path": str(tmp_path / "spm.model")}
    for kind, name in (("parquet", "part-*.parquet"), ("arrayrecord", "part-*.array_record")):
        counts = _really_counted(
            spec, "grain", str(tmp_path / name), grain_file_type=kind, **with_pieces
        )
        _check(counts, pieces, number)
    counts = _really_counted(
        spec,
        "hf",
        "json",
        hf_train_files=str(tmp_path / "all.jsonl"),
        tokenizer_path=str(tmp_path / "words"),
    )
    words = [at % 50 + 1 for at in range(number)]
    _check(replace(counts, in_all=number), words[:MOST], number)
    assert counts.in_all == (number if number < MOST else None)


def _really_counted(spec, source, path, **options):
    run = replace(
        spec,
        data=Data(source=source, path=path, sequence_length=20, batch_size=4),
        maxtext=replace(spec.maxtext, **options),
    )
    return counted(run, os.environ)


def _check(counts, lengths, number):
    """All of the documents where there are few; else a sample, whose mean is near theirs."""
    assert counts.in_all == number
    kept = [min(length, 20) for length in lengths]
    if number <= MOST:
        cut = sum(length > 20 for length in lengths)
        assert (counts.documents, counts.cut) == (number, cut)
        assert (counts.tokens, counts.kept) == (sum(lengths), sum(kept))
        return
    assert MOST * 0.5 <= counts.documents <= MOST
    assert counts.kept / counts.documents == pytest.approx(sum(kept) / len(kept), rel=0.02)
    assert counts.tokens / counts.documents == pytest.approx(sum(lengths) / len(lengths), rel=0.02)
