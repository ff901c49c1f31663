"""The first example of README.md."""

from tools.tables.printed import run

FIRST = "examples/public/gb200-continued"  # the set of README.md
INSTALL = """\
python3 -m venv /tmp/parity && /tmp/parity/bin/pip install .
export PATH=/tmp/parity/bin:$PATH"""


def first_lines() -> str:
    """How to install the command line, the command, and the lines of its output that answer: each
    candidate's, and what is next.
    """
    command = f"parity compare {FIRST}/parity.yaml"
    shown: list[str] = []
    is_shown = True
    for line in run(command).splitlines():
        is_heading = line.endswith(":") and " " not in line
        if is_heading and shown:
            shown.append("")
        is_shown = (is_shown or is_heading or line.startswith("Next")) and not line.startswith(
            "Reasons"
        )
        if is_shown and line:
            shown.append(line)
        is_shown = is_shown and "% interval" not in line
    answering = "\n".join(shown)
    return f"```sh\n{INSTALL}\n{command}\n```\n\n```\n{answering}\n```"
