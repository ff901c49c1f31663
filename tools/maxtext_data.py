"""Real text for a small MaxText run: Python's own library sources as Parquet, and a sentencepiece
model of 512 tokens.

python tools/maxtext_data.py FOLDER      # with a Python that has pyarrow and sentencepiece, such as
  .venv/maxtext's
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import sentencepiece

_LETTERS = 2000  # in a document
_TRAINED_ON = 300  # documents that the sentencepiece model is made of
_NOT_LIBRARY = {"site-packages", "test", "tests", "idle_test"}


def main() -> int:
    """Write train.parquet and spm.model into the folder."""
    folder = Path(sys.argv[1])
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(
        path
        for path in library.rglob("*.py")
        if not _NOT_LIBRARY & set(path.relative_to(library).parts)
    )
    sources = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    texts = [
        source[at : at + _LETTERS] for source in sources for at in range(0, len(source), _LETTERS)
    ]
    pq.write_table(pa.table({"text": texts}), folder / "train.parquet", row_group_size=500)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(
            line for text in texts[:_TRAINED_ON] for line in text.split("\n") if line.strip()
        ),
        model_prefix=str(folder / "spm"),
        vocab_size=512,
        model_type="bpe",
        num_threads=1,
        minloglevel=2,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
