"""Where a small mistake can be made in a module, and the module's text with it.

A mutation replaces one stretch of the text, found by the positions of the syntax tree, so that
nothing else changes. Annotations, texts, assertions, calls that log, decorators of dataclasses and
`zip(strict=True)` have none: no behaviour of working code depends on them.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

_OPPOSITES = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "is": "is not", "is not": "is", "in": "not in", "not in": "in",
}  # fmt: skip
_COMPARISON = re.compile(rb"is\s+not|not\s+in|is|in|[<>=!]=|[<>]")
_KEYED = re.compile(r"(^|_)(key|keys|identity|fingerprint)(_|$)", re.IGNORECASE)
_LOCK = re.compile(r"(^|_)r?lock$", re.IGNORECASE)
_LOGGER = re.compile(r"_?(log|logger|logging)")
_NO_LOCK = '__import__("contextlib").nullcontext()'
SWAPPED = "swap with the next branch"


@dataclass(frozen=True, order=True)
class Mutation:
    """One stretch of a module's text, in bytes, and what stands there instead.

    `statement` and `change` say which one it is, however the text is formatted.
    """

    start: int
    end: int
    new: str
    change: str
    statement: str
    line: int

    def applied(self, source: bytes) -> bytes:
        """The module's text with the mistake."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def parses(self, source: bytes) -> bool:
        """Whether the text with the mistake is Python: a change may leave a parenthesis alone."""
        try:
            ast.parse(self.applied(source))
        except SyntaxError:
            return False
        return True


def mutations(source: bytes) -> Sequence[Mutation]:
    """All mutations of a module, in the order of its text; equal changes of equal statements are
    numbered.
    """
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    seen: Counter[tuple[str, str]] = Counter()
    numbered = []
    for found in sorted(finder.found):
        seen[found.statement, found.change] += 1
        number = seen[found.statement, found.change]
        change = found.change if number == 1 else f"{found.change} #{number}"
        numbered.append(replace(found, change=change))
    return numbered


class _Finder(ast.NodeVisitor):
    """Walks over the statements that run and notes what may change in each."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.found: list[Mutation] = []
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._is_key = False
        self._statement: ast.AST = ast.Pass()
        self._headers: dict[ast.AST, str] = {}

    def visit(self, node: ast.AST) -> None:
        """Walk over a node, and remember in which statement that is."""
        before = self._statement
        if isinstance(node, ast.stmt):
            self._statement = node
        super().visit(node)
        self._statement = before

    def _start(self, node: ast.AST) -> int:
        return self._lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined, no-any-return]

    def _end(self, node: ast.AST) -> int:
        return self._lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined, no-any-return]

    def _text(self, start: int, end: int) -> str:
        return self.source[start:end].decode()

    def _add(self, start: int, end: int, new: str, change: str | None = None) -> None:
        change = change or f"{' '.join(self._text(start, end).split())} -> {new}"
        line = self.source.count(b"\n", 0, start) + 1
        if self._statement not in self._headers:
            self._headers[self._statement] = _header(self._statement)
        self.found.append(Mutation(start, end, new, change, self._headers[self._statement], line))

    def _between(self, left: ast.AST, right: ast.AST, words: re.Pattern[bytes]) -> re.Match[bytes]:
        """The operator between two operands."""
        found = words.search(self.source, self._end(left), self._start(right))
        if found is None:
            raise ValueError(f"no operator in {self._text(self._start(left), self._end(right))!r}")
        return found

    def _walk(self, nodes: Sequence[ast.AST | None], is_key: bool = False) -> None:
        before, self._is_key = self._is_key, self._is_key or is_key
        for node in nodes:
            if node is not None:
                self.visit(node)
        self._is_key = before

    def generic_visit(self, node: ast.AST) -> None:
        for _, block in ast.iter_fields(node):
            if isinstance(block, list):
                self._swaps(block)
        super().generic_visit(node)

    def _swaps(self, block: Sequence[object]) -> None:
        """Neighbours of a block that each return or yield, in the other order."""
        for first, second in pairwise(
            statement for statement in block if isinstance(statement, ast.AST)
        ):
            if _gives(first) and _gives(second) and not _same_end(first, second):
                before, self._statement = self._statement, first
                self._swap(
                    self._start(first), self._end(first), self._start(second), self._end(second)
                )
                self._statement = before

    def _swap(self, start: int, end: int, second_start: int, second_end: int) -> None:
        parts = (second_start, second_end), (end, second_start), (start, end)
        self._add(start, second_end, "".join(self._text(*part) for part in parts), SWAPPED)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._walk([*_running(node.decorator_list), *node.args.defaults, *node.args.kw_defaults])
        self._swaps(node.body)
        self._walk(node.body, is_key=bool(_KEYED.search(node.name)))

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._walk([*_running(node.decorator_list), *node.body])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._walk([node.value], is_key=bool(_KEYED.search(_name(node.target))))

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [_name(target) for target in node.targets]
        if "__all__" not in names:
            self._walk([*node.targets, node.value], is_key=any(map(_KEYED.search, names)))

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion states what cannot be."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Python 3.11 does not know where the parts of a text stand."""

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _name(node.value) != "Literal":
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if _name(node.test) == "TYPE_CHECKING":
            self._walk(node.orelse)
            return
        if isinstance(node.test, ast.Compare) and _name(node.test.left) == "__name__":
            return
        other = node.orelse[0] if len(node.orelse) == 1 else None
        if isinstance(other, ast.If) and self._is_elif(other) and not _same_end(node, other):
            condition = self._start(node) + len("elif" if self._is_elif(node) else "if")
            ends = self._end(node.body[-1]), self._end(other.body[-1])
            self._swap(condition, ends[0], self._start(other) + len("elif"), ends[1])
        self.generic_visit(node)

    def _is_elif(self, node: ast.If) -> bool:
        return self.source.startswith(b"elif", self._start(node))

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            if _LOCK.search(_name(item.context_expr)):
                self._add(
                    self._start(item.context_expr),
                    self._end(item.context_expr),
                    _NO_LOCK,
                    f"dropped {_words(item.context_expr)}",
                )
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and _LOCK.search(_name(node.value)):
            self._add(self._start(node), self._end(node), "pass", f"dropped {_words(node)}")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (
            isinstance(node.value, ast.Constant) and node.value.value is None
        ):
            self._add(
                self._start(node.value),
                self._end(node.value),
                "None",
                f"{_words(node.value)} -> None",
            )
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _name(node)
        if isinstance(node.func, ast.Attribute) and _LOGGER.fullmatch(_name(node.func.value)):
            return
        if name == "with_for_update" and isinstance(node.func, ast.Attribute):
            self._add(self._end(node.func.value), self._end(node), "", "dropped with_for_update()")
        if name in ("min", "max") and isinstance(node.func, ast.Name):
            self._add(
                self._start(node.func), self._end(node.func), "max" if name == "min" else "min"
            )
        self._walk([node.func, *(node.args[1:] if name == "cast" else node.args)])
        for keyword in node.keywords:
            if (name, keyword.arg) != ("zip", "strict"):
                self._walk([keyword.value], is_key=bool(keyword.arg and _KEYED.search(keyword.arg)))

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right in pairwise([node.left, *node.comparators]):
            found = self._between(left, right, _COMPARISON)
            self._add(*found.span(), _OPPOSITES[" ".join(found[0].decode().split())])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in pairwise(node.values):
            found = self._between(left, right, re.compile(rb"\b(and|or)\b"))
            self._add(*found.span(), "or" if found[0] == b"and" else "and")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(self._start(node), self._start(node) + len("not"), "", "dropped not")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and not any(
            map(_is_text, (node.left, node.right))
        ):
            found = self._between(node.left, node.right, re.compile(rb"[+-]"))
            self._add(*found.span(), "-" if found[0] == b"+" else "+")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and not _is_text(node.value):
            found = self._between(node.target, node.value, re.compile(rb"[+-]="))
            self._add(*found.span(), "-=" if found[0] == b"+=" else "+=")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(self._start(node), self._end(node), str(not value))
        elif isinstance(value, int):
            self._add(self._start(node), self._end(node), str(value + 1))
        elif isinstance(value, float):
            self._add(self._start(node), self._end(node), f"{value * 1.1 or 1.0:.12g}")

    def visit_Tuple(self, node: ast.Tuple) -> None:
        if self._is_key and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
            self._drops([(part, part) for part in node.elts], is_tuple=True)
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        if self._is_key and len(node.keys) > 1 and None not in node.keys:
            pairs = zip(node.keys, node.values, strict=True)
            self._drops([(key, value) for key, value in pairs if key], is_tuple=False)
        self.generic_visit(node)

    def _drops(self, fields: Sequence[tuple[ast.expr, ast.expr]], *, is_tuple: bool) -> None:
        """Each field of a key left out; `fields` has where each begins and where it ends."""
        comma = "," if is_tuple and len(fields) == 2 else ""
        spans = [(self._start(first), self._end(last)) for first, last in fields]
        for number, (start, end) in enumerate(spans):
            change = f"dropped {_words(fields[number][0])}"
            if number + 1 < len(spans):
                following = spans[number + 1]
                self._add(start, following[1], self._text(*following) + comma, change)
            else:
                self._add(spans[number - 1][1], end, comma, change)


def _words(node: ast.AST) -> str:
    """The text of a node, whoever formatted it; Python's versions differ in the quotes."""
    return " ".join(ast.unparse(node).replace('"', "'").split())


def _header(statement: ast.AST) -> str:
    """The text of a statement, without what stands in its blocks."""
    if not isinstance(getattr(statement, "body", None), list):
        return _words(statement)
    lines = [line for line in ast.unparse(statement).splitlines() if not line.startswith("@")]
    return lines[0].replace('"', "'")


def _name(node: ast.AST) -> str:
    """The last name of what is called or read: `lock` of `self.lock(job)`."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _running(decorators: Sequence[ast.expr]) -> Iterator[ast.expr]:
    return (decorator for decorator in decorators if _name(decorator) != "dataclass")


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def _gives(node: object) -> bool:
    """Whether a statement yields, or is a condition with one branch that returns or yields at its
    end.
    """
    if isinstance(node, ast.If):
        return not node.orelse and (isinstance(node.body[-1], ast.Return) or _gives(node.body[-1]))
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.YieldFrom)


def _same_end(first: object, second: object) -> bool:
    """Whether two conditions do the same: their order changes nothing."""
    if not (isinstance(first, ast.If) and isinstance(second, ast.If)):
        return False
    return ast.dump(ast.Module(first.body, [])) == ast.dump(ast.Module(second.body, []))
