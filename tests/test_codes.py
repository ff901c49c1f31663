"""docs/codes.md has every error code of runs and jobs that the sources contain, and every type of a
refused request.
"""

import ast
import re
from collections.abc import Iterator

from server.errors import ServiceError, kinds
from server.run_codes import RUN_CODES
from server.settings import CHECKOUT
from tools.tables.generated import DOCS

PAGE = DOCS / "codes.md"
ENTRIES = "server/run_codes.py"
CODE = re.compile(r"[A-Z]{5,}|[A-Z]+(_[A-Z]+)+")
# Words in capitals that are not codes: SQL, HTTP, environment variables, names of the system, text
# that jax prints, values in a help.
OTHER = {
    "STEPS",
    "HOURS",
    "FACTOR",
    "RECIPE",
    "WHICH",
    "BEGIN",
    "CASCADE",
    "OPTIONS",
    "NNODES",
    "NODE_RANK",
    "PROCESSES_IN_JOB",
    "JOB_INDEX",
    "JOB_COMPLETION_INDEX",
    "HF_HUB_OFFLINE",
    "RESOURCE_EXHAUSTED",
    "SC_CLK_TCK",
    "SC_PAGE_SIZE",
    "SC_PHYS_PAGES",
}
VARIABLES = re.compile(
    r"(PARITY|GIT|LC|SLURM|OMPI|PMI|JAX|NVTE|NCCL|PYTHON|CUDA|XLA|LD|SSL)[A-Z_]*|VIRTUAL_ENV|TMPDIR|GLIBC_TUNABLES|DECOUPLE_GCLOUD"
)
VARIABLES_OF = {
    "workers/slots.py",
    "training/environment/processes.py",
    "training/device.py",
    "training/provenance.py",
    "training/environment/parent_death.py",
}


def _codes() -> set[str]:
    all_codes = set()
    for package in ("server", "training", "workers", "parity_lab"):
        for path in (CHECKOUT / package).rglob("*.py"):
            if path == CHECKOUT / ENTRIES:
                continue
            words = {
                node.value
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Constant)
            }
            codes = {
                word
                for word in words
                if isinstance(word, str) and CODE.fullmatch(word) and not VARIABLES.fullmatch(word)
            }
            if path.relative_to(CHECKOUT).as_posix() in VARIABLES_OF:
                codes &= {"WRAPPER"}
            all_codes |= codes - OTHER
    return all_codes


def _errors(base: type[ServiceError] = ServiceError) -> Iterator[type[ServiceError]]:
    """Every error of a request that is a type of its own."""
    if "kind" in vars(base):
        yield base
    for error in base.__subclasses__():
        yield from _errors(error)


def test_every_code_of_runs_and_jobs_has_a_row():
    assert list(RUN_CODES) == sorted(RUN_CODES)
    assert set(RUN_CODES) == _codes() | {"CANCELLED"}
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r'^\| <a id="runs-and-jobs-(\w+)"></a>`\1` \|', page, re.MULTILINE)
    assert rows == list(RUN_CODES)


def test_every_refusal_has_a_remedy_of_its_own_and_a_row():
    errors = list(_errors())
    assert [error.kind for error in errors if "remedy" not in vars(error)] == []
    assert sorted(error.kind for error in errors) == list(kinds())
    page = PAGE.read_text(encoding="utf-8").partition("\n## Refused requests\n")[2]
    assert re.findall(r"^\| `([^`]+)` \| \d{3} \|", page, re.MULTILINE) == list(kinds())
