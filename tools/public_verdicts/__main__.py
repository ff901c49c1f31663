"""Judges every set of examples/public, a line an answer: `python -m tools.public_verdicts`; exits
with 1 where an answer is not allowed by examples/public/expected.csv.

`--bundle` writes the picture and the bundle of evidence of the set of several systems instead.
`--site FOLDER` writes the public verdicts as pages for any file server, with pictures and cards.
`python -m tools.tables public_verdicts` writes the pages.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.public_verdicts.expected import expected, holds
from tools.public_verdicts.sets import answers
from tools.public_verdicts.site import write_site
from tools.public_verdicts.systems import BUNDLE, PICTURE, SYSTEMS
from tools.tables.generated import ROOT
from tools.tables.printed import run


def judge() -> int:
    """One line an answer; 1 where one is not allowed."""
    for answer in answers():
        name = f"{answer.of.name} {answer.question} {answer.size}".strip()
        allowed = expected()[answer.of.name, answer.question]["allowed"]
        print(
            f"{name:45} {answer.word:13} {answer.document['codes'][0]:22} {allowed:26} "
            f"{'ok' if holds(answer) else 'MISS'}"
        )
    return int(not all(map(holds, answers())))


def write_evidence() -> None:
    """Write the picture and the bundle of the set of several systems."""
    run(
        f"parity compare {SYSTEMS}/parity.yaml:one-percent --figure {PICTURE.relative_to(ROOT)} "
        f"--bundle {BUNDLE.relative_to(ROOT)}"
    )


def main(words: Sequence[str]) -> int:
    """Judge, or write what the options name."""
    parser = argparse.ArgumentParser(prog="python -m tools.public_verdicts", description=__doc__)
    parser.add_argument("--bundle", action="store_true", help="write the picture and the bundle")
    parser.add_argument("--site", type=Path, metavar="FOLDER", help="write the pages as files")
    options = parser.parse_args(words)
    if options.site:
        try:
            print(f"{write_site(options.site.resolve())} files in {options.site}")
        except FileExistsError as error:
            parser.error(str(error))
        return 0
    if options.bundle:
        write_evidence()
        return 0
    return judge()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
