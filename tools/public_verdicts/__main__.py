"""Judges every set of examples/public, a line an answer: `python -m tools.public_verdicts`; exits
with 1 where an answer is not allowed by examples/public/expected.csv.

`--bundle` writes the picture and the bundle of evidence of the set of several systems instead.
`python -m tools.tables public_verdicts` writes the pages.
"""

import sys

from tools.public_verdicts.expected import expected, holds
from tools.public_verdicts.sets import answers
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


if __name__ == "__main__":
    if sys.argv[1:] == ["--bundle"]:
        write_evidence()
    else:
        sys.exit(judge())
