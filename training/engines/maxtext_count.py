"""How many documents of a run's data MaxText cuts to the length of a sequence; run by MaxText's
Python, without this package (`maxtext_documents`).

    PYTHON training/engines/maxtext_count.py < request.json > counts.json

Of more than `most` documents it reads a sample: of Parquet and ArrayRecord rows that lie evenly
over the files, of `datasets` the first. Tokens are those of MaxText's own tokenizer, with the marks
that it puts at the beginning and the end of a document.

Source: MaxText 0.2.5, input_pipeline/grain_tokenizer.py (TokenizeAndTrim), tokenizer.py,
hf_data_processing.py.
"""

import contextlib
import glob
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_COLUMN = "text"  # train_data_columns of MaxText's base.yml
_ROW_GROUPS = 16  # of Parquet, each of which is read whole; more where they are small
Encode = Callable[[str], Sequence[int]]


def main() -> int:
    """Read a request on standard input, and print its counts."""
    request = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # where MaxText says what it loads
        counts = counted(request)
    json.dump(counts, sys.stdout)
    return 0


def counted(request: dict[str, Any]) -> dict[str, int | None]:
    """Counts of the documents that were read: how many, of how many in all (None: not known), how
    many have more tokens than a sequence, their tokens, and those that are left.
    """
    documents, in_all = _READERS[request["kind"]](request)
    encode = _encoder(request)
    lengths = [len(encode(text)) for text in documents]
    length = request["sequence_length"]
    if in_all is None and len(lengths) < request["most"]:
        in_all = len(lengths)
    return {
        "documents": len(lengths),
        "in_all": in_all,
        "cut": sum(tokens > length for tokens in lengths),
        "tokens": sum(lengths),
        "kept": sum(min(tokens, length) for tokens in lengths),
    }


def _encoder(request: dict[str, Any]) -> Encode:
    path, kind = request["tokenizer_path"], request["tokenizer_type"]
    if request["kind"] == "hf":  # whose pipeline takes no other tokenizer
        from transformers import AutoTokenizer  # noqa: PLC0415

        of_hub = AutoTokenizer.from_pretrained(
            path, add_bos_token=True, add_eos_token=True, legacy=False, extra_special_tokens={}
        )
        return lambda text: of_hub(text)["input_ids"]
    from maxtext.input_pipeline.tokenizer import build_tokenizer  # noqa: PLC0415

    encode: Encode = build_tokenizer(path, kind, True, True, "").encode
    return encode


def _evenly(number: int, most: int) -> list[int]:
    """At most so many of the numbers from 0, at equal distances."""
    if number <= most:
        return list(range(number))
    return [position * number // most for position in range(most)]


def _parquet(request: dict[str, Any]) -> tuple[Iterator[str], int]:
    import pyarrow.parquet as pq  # noqa: PLC0415

    files = [pq.ParquetFile(name) for name in sorted(glob.glob(request["path"]))]  # noqa: PTH207
    groups = [(file, group) for file in files for group in range(file.num_row_groups)]
    in_all = sum(file.metadata.num_rows for file in files)
    if in_all <= request["most"]:
        chosen, most = groups, in_all
    else:
        needed = max(_ROW_GROUPS, request["most"] * len(groups) // in_all)
        chosen = [groups[at] for at in _evenly(len(groups), needed)]
        most = request["most"] // len(chosen)

    def documents() -> Iterator[str]:
        for file, group in chosen:
            column = file.read_row_group(group, columns=[_COLUMN]).column(_COLUMN)
            for row in _evenly(len(column), most):
                yield _text(column[row].as_py())

    return documents(), in_all


def _arrayrecord(request: dict[str, Any]) -> tuple[Iterator[str], int]:
    from array_record.python.array_record_data_source import ArrayRecordDataSource  # noqa: PLC0415
    from maxtext.input_pipeline.protos import example_pb2  # noqa: PLC0415

    source = ArrayRecordDataSource(sorted(glob.glob(request["path"])))  # noqa: PTH207

    def documents() -> Iterator[str]:
        for at in _evenly(len(source), request["most"]):
            example = example_pb2.Example()
            example.ParseFromString(source[at])
            yield _text(example.features.feature[_COLUMN].bytes_list.value[0])

    return documents(), len(source)


def _datasets(request: dict[str, Any]) -> tuple[Iterator[str], None]:
    import datasets  # noqa: PLC0415

    stream = datasets.load_dataset(
        request["path"],
        name=request["hf_name"] or None,
        data_dir=request["hf_data_dir"] or None,
        data_files=request["hf_train_files"] or None,
        split=request["train_split"],
        streaming=True,
    )
    return (_text(row[_COLUMN]) for row in itertools.islice(stream, request["most"])), None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


_READERS: dict[str, Callable[[dict[str, Any]], tuple[Iterator[str], int | None]]] = {
    "parquet": _parquet,
    "arrayrecord": _arrayrecord,
    "hf": _datasets,
}


if __name__ == "__main__":
    sys.exit(main())
