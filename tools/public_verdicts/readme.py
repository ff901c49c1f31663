"""The first example of README.md."""

from parity.report.words import MARKS
from tools.tables.printed import run

FIRST = "examples/public/gb200-continued"  # the set of README.md
INSTALL = """\
python3 -m venv /tmp/parity && /tmp/parity/bin/pip install .
export PATH=/tmp/parity/bin:$PATH"""


def first_lines() -> str:
    """How to install the command line, the command, and the lines of its output that answer: each
    candidate's, above its interval.
    """
    command = f"parity compare {FIRST}/parity.yaml"
    paragraphs = run(command).split("\n\n")
    answering = "\n\n".join(
        text
        for text in paragraphs
        if any(mark in text for mark in MARKS.values()) and "95 % interval" in text
    )
    return f"```sh\n{INSTALL}\n{command}\n```\n\n```\n{answering}\n```"
