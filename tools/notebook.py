"""Runs the cells of a notebook and writes their outputs into it: `python -m tools.notebook
examples/notebook.ipynb`.

Enough of Jupyter for our examples: one process, what is printed, and the last expression of a cell
as its text and HTML. Cells run in the notebook's folder. A test runs them again and compares what
they give with the file.
"""

import argparse
import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any


def executed(text: str, folder: Path) -> str:
    """The notebook (JSON, nbformat 4) with the outputs of its code cells, run in order in
    `folder`.
    """
    notebook = json.loads(text)
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for number, cell in enumerate(
            (cell for cell in notebook["cells"] if cell["cell_type"] == "code"), 1
        ):
            cell["execution_count"] = number
            cell["outputs"] = _outputs("".join(cell["source"]), names, number)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Runs a cell; what it printed, then the value of its last expression."""
    tree = ast.parse(source)
    last = None
    if tree.body and isinstance(end := tree.body[-1], ast.Expr):
        last = ast.Expression(end.value)
        tree.body.pop()
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        exec(compile(tree, f"cell {number}", "exec"), names)  # noqa: S102
        value = eval(compile(last, f"cell {number}", "eval"), names) if last is not None else None  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if stdout.getvalue():
        outputs.append(
            {"name": "stdout", "output_type": "stream", "text": _lines(stdout.getvalue())}
        )
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        outputs.append(
            {
                "data": data,
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run the notebooks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    for path in parser.parse_args().notebooks:
        written = executed(path.read_text(encoding="utf-8"), path.parent)
        temporary = path.with_suffix(".part")
        temporary.write_text(written, encoding="utf-8")
        temporary.replace(path)


if __name__ == "__main__":
    main()
