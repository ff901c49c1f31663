"""The codes of runs and jobs in docs/codes.md, made from the server's entries."""

from server.run_codes import RUN_CODES
from tools.tables.generated import DOCS, GeneratedTable


def run_codes() -> str:
    """One row per code of a run or a job, with an anchor to which its pages lead:
    `runs-and-jobs-CODE`.
    """
    rows = (
        f'| <a id="runs-and-jobs-{code}"></a>`{code}` | {entry.meaning} | {entry.next_step} |'
        for code, entry in RUN_CODES.items()
    )
    return "\n".join(["| code | meaning | what to do |", "| --- | --- | --- |", *rows])


TABLE = GeneratedTable(name="run_codes", parts={DOCS / "codes.md": {"run codes": run_codes}})
