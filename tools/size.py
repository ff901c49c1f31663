"""How large is the source? `python -m tools.size [FOLDER]` prints a line a figure, of a checkout
(default: this one).

Counted in the packages that ship (PACKAGES), without their tests: modules, lines, statements and
tokens (neither changes with the format), calls that copy four fields or more (`x=y.x`), conditional
expressions, records (dataclasses, TypedDicts, pydantic models) of four fields or more, functions
with more than eight parameters, and modules below 80 lines.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("parity", "server", "workers", "training", "migrations", "parity_lab")
COPIED, RECORD_FIELDS, MANY_PARAMETERS, SMALL = 4, 4, 8, 80
_SILENT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
)


def sources(root: Path) -> Iterator[Path]:
    """The modules of the packages, in order."""
    for package in PACKAGES:
        yield from sorted((root / package).rglob("*.py"))


def measure(root: Path) -> dict[str, int]:
    """The figures of a checkout, by name."""
    sizes: Counter[str] = Counter()
    for path in sources(root):
        text = path.read_text(encoding="utf-8")
        lines = len(text.splitlines())
        sizes["modules"] += 1
        sizes[f"modules below {SMALL} lines"] += lines < SMALL
        sizes["lines"] += lines
        sizes["tokens"] += sum(
            token.type not in _SILENT
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
        )
        sizes.update(_node_figures(ast.parse(text)))
    return dict(sizes)


def _node_figures(tree: ast.Module) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        found["statements"] += isinstance(node, ast.stmt)
        found["conditional expressions"] += isinstance(node, ast.IfExp)
        found["field-by-field copies"] += isinstance(node, ast.Call) and _copied(node) >= COPIED
        found[f"records of {RECORD_FIELDS} fields or more"] += (
            isinstance(node, ast.ClassDef) and _fields(node) >= RECORD_FIELDS
        )
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            found[f"functions of more than {MANY_PARAMETERS} parameters"] += (
                len(parameters) > MANY_PARAMETERS
            )
    return found


def _copied(call: ast.Call) -> int:
    """How many keywords take the attribute of their own name, as it is or converted."""
    return sum(
        any(
            isinstance(part, ast.Attribute) and part.attr == keyword.arg
            for part in ast.walk(keyword.value)
        )
        for keyword in call.keywords
    )


def _fields(node: ast.ClassDef) -> int:
    return sum(isinstance(line, ast.AnnAssign) for line in node.body)


if __name__ == "__main__":
    for name, size in measure(
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    ).items():
        print(f"{name:42} {size:>9,}")
