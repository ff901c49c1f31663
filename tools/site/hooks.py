"""Hooks of mkdocs (mkdocs.yml): what the site has in addition to docs/, and what its pages must not
have.

Generated pages: the start page from README.md, the command line from the typer app, the REST API
from docs/openapi.json, the Python API from the docstrings. Files outside docs/ to which a page
links become pages of their own, so that the site needs no other host. Inline scripts become files,
because the server's Content-Security-Policy allows none.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import posixpath
import re
import subprocess
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.main import get_command

import parity
from parity.cli.application import app
from parity.cli.terminal.help import ALL_OPTIONS
from parity.gate.exit_codes import EXIT_CODES
from parity.version import JUDGE_VERSION, VERSION

CHECKOUT = Path(__file__).resolve().parents[2]
# What each exit code of the command line means, by its name in `EXIT_CODES`.
EXITS = {
    "pass": "pass; or done, for commands that judge nothing",
    "fail": "fail",
    "usage": "wrong usage or input",
    "inconclusive": "inconclusive",
    "infrastructure": "infrastructure: no server, a job that could not run, an interrupted wait",
    "timeout": "timeout",
    "other judge": "the bundle was made by another version of the judge (`verify` only)",
    "unrecorded": "no verdict is recorded (`gate --lookup` only)",
}
_LINK = re.compile(r"(\]\()([^)\s#]*)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^(```.*?^```$)", re.DOTALL | re.MULTILINE)
_LONG_OPTION = re.compile(r"--[a-z][a-z0-9-]*")
_MARKDOWN = re.compile(r"([\\*_\[\]#|])")
_TAG = re.compile(r"<[^>]+>")
_INLINE_SCRIPT = re.compile(r"<script>(.+?)</script>", re.DOTALL)
_CANONICAL = re.compile(r'<link rel="canonical" href="[^"]*">')
_AS_THEY_ARE = frozenset({".csv", ".ipynb", ".npz", ".png", ".svg", ".zip"})
_LANGUAGES = {".py": "python", ".sh": "sh", ".yaml": "yaml", ".yml": "yaml"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The version in the title; in the footer also the commit and the repository of this checkout,
    where git knows them.
    """
    commit, repository = (
        _git("rev-parse", "--short", "HEAD"),
        _git("remote", "get-url", "origin").removesuffix(".git"),
    )
    shown = (
        f'<a href="{repository}">{commit or "source"}</a>'
        if re.fullmatch("https://[^@]+", repository)
        else commit
    )
    config.site_name = f"parity {VERSION}"
    config.copyright = (
        f"parity {VERSION}, judge {JUDGE_VERSION}"
        + (f", built from {shown}" if shown else "")
        + ". Apache-2.0."
    )
    return config


def _git(*words: str) -> str:
    """What git answers about the checkout; empty where it has no answer."""
    answer = subprocess.run(
        ["git", *words],  # noqa: S607
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
    )
    return answer.stdout.strip() if answer.returncode == 0 else ""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and every file outside docs/ that a page links to, directly or
    through another one.
    """
    for name, content in (
        ("cli.md", cli_page()),
        ("rest.md", rest_page()),
        ("python-api.md", python_page()),
    ):
        files.append(File.generated(config, name, content=content))
    texts = [
        (_checkout_path(file.src_uri), file.content_string)
        for file in files
        if file.src_uri.endswith(".md")
    ]
    texts.append(("README.md", (CHECKOUT / "README.md").read_text("utf-8")))
    files.append(File.generated(config, "index.md", content=texts[-1][1]))
    while texts:
        page, text = texts.pop()
        for path in _linked(page, text):
            uri = _site_path(path)
            if not path.startswith("docs/") and files.get_file_from_path(uri) is None:
                target = CHECKOUT / path
                if target.suffix == ".md":
                    texts.append((path, target.read_text("utf-8")))
                    files.append(File.generated(config, uri, content=texts[-1][1]))
                elif target.suffix in _AS_THEY_ARE:
                    files.append(File.generated(config, uri, abs_src_path=str(target)))
                else:
                    files.append(File.generated(config, uri, content=_listing(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links outside docs/ lead to the page or copy in the site."""
    here = _checkout_path(page.file.src_uri)

    def inside(match: re.Match[str]) -> str:
        path = _target(here, match[2])
        if path is None:
            return match[0]
        return (
            match[1]
            + posixpath.relpath(_site_path(path), posixpath.dirname(page.file.src_uri))
            + match[3]
        )

    return "".join(
        part if part.startswith("```") else _LINK.sub(inside, part)
        for part in _FENCE.split(markdown)
    )


def on_page_content(html: str, **_: Any) -> str:
    """Give each cell of a table the title of its column: a narrow window shows rows as lists
    (docs/site.css).
    """

    def labelled(match: re.Match[str]) -> str:
        titles = [
            _TAG.sub("", title) for title in re.findall(r"<th[ >].*?</th>", match[0], re.DOTALL)
        ]
        numbers = itertools.count()
        return re.sub(
            r"<td(?=[ >])",
            lambda _: f'<td data-title="{titles[next(numbers) % len(titles)]}"',
            match[0],
        )

    return re.sub(r"<table>.*?</table>", labelled, html, flags=re.DOTALL)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Move inline scripts into files, name the search for screen readers, and drop the canonical
    link.
    """
    return _finished(output, config, posixpath.relpath(".", posixpath.dirname(page.url) or "."))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for the page of errors, whose links are absolute."""
    return (
        _finished(output_content, config, "/docs")
        if template_name == "404.html"
        else output_content
    )


def _finished(html: str, config: MkDocsConfig, root: str) -> str:
    named = html.replace(
        'data-md-component="search" role="dialog"',
        'data-md-component="search" role="dialog" aria-label="Search"',
    )
    return extract_inline_scripts(_CANONICAL.sub("", named), Path(config.site_dir), root)


def extract_inline_scripts(html: str, site: Path, root: str) -> str:
    """The page with its inline scripts as files of the site, whose address from this page is
    `root`.
    """

    def as_file(match: re.Match[str]) -> str:
        name = f"assets/inline/{hashlib.sha256(match[1].encode()).hexdigest()[:12]}.js"
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(match[1], encoding="utf-8")
        return f'<script src="{root}/{name}"></script>'

    return _INLINE_SCRIPT.sub(as_file, html)


def cli_page() -> str:
    """The exit codes, and every command's help with an anchor for each option:
    `parity-compare--margin`.
    """
    codes = [
        f"| {code} | {EXITS[name]} |"
        for name, code in sorted(EXIT_CODES.items(), key=lambda item: item[1])
    ]
    lines = [
        "# Command line",
        "",
        (
            "Written from the program itself. `--server` or `PARITY_URL` names the server, "
            "`--token` or `PARITY_TOKEN` the token."
        ),
        (
            "With several candidates the worst verdict decides the exit code: fail, then "
            "inconclusive, then pass."
        ),
        "",
        "| exit code | meaning |",
        "| --- | --- |",
        *codes,
        "",
    ]
    for names, command in _commands(get_command(app), ("parity",)):
        context = click.Context(command, info_name=" ".join(names))
        context.meta[ALL_OPTIONS] = True
        help_page = MarkdownHelp("-".join(names))
        command.format_help(context, help_page)
        lines += [f"## {' '.join(names)}", "", *help_page.lines]
    return "\n".join(lines)


class MarkdownHelp(click.HelpFormatter):
    """What a command writes into its help, as Markdown: paragraphs, its example as a block,
    arguments and options as definitions.
    """

    def __init__(self, anchor: str) -> None:
        super().__init__()
        self.anchor = anchor
        self.lines: list[str] = []

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:  # noqa: ARG002
        """The line of the usage."""
        self.lines += [
            "```text",
            *textwrap.wrap(f"{prog} {args}", 78, subsequent_indent="    "),
            "```",
            "",
        ]

    def write_heading(self, heading: str) -> None:
        """The title of a group of options."""
        self.lines += [f"**{heading}**", ""]

    def write_paragraph(self) -> None:
        """Nothing: each part ends with an empty line."""

    def write(self, string: str) -> None:
        """The example."""
        if string.strip():
            self.lines += ["```sh", string.strip(), "```", ""]

    def write_text(self, text: str) -> None:
        """Paragraphs; what follows \\b stays in its lines."""
        for part in text.split("\n\n"):
            if part.startswith("\b"):
                self.lines += ["```text", part.removeprefix("\b").strip("\n"), "```", ""]
            else:
                self.lines += [_plain(part), ""]

    def write_dl(
        self,
        rows: Iterable[tuple[str, str]],
        col_max: int = 30,  # noqa: ARG002
        col_spacing: int = 2,  # noqa: ARG002
    ) -> None:
        """Definitions; an option has an anchor of its long name."""
        for name, text in rows:
            flag = next(iter(_LONG_OPTION.findall(name)), "")
            anchor = f'<a id="{self.anchor}{flag}"></a>' if flag else ""
            self.lines += [f"{anchor}`{name}`", f":   {_plain(text)}", ""]


def _plain(text: str) -> str:
    """A text of the help, in which Markdown interprets nothing but code between backticks."""
    parts = " ".join(text.split()).split("`")
    return "`".join(
        part if number % 2 else _MARKDOWN.sub(r"\\\1", part).replace("<", "&lt;")
        for number, part in enumerate(parts)
    )


def _commands(command: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield names, command
    context = click.Context(command, info_name=names[-1])
    for name in getattr(command, "list_commands", lambda _: ())(context):
        yield from _commands(command.get_command(context, name), (*names, name))


def rest_page() -> str:
    """The operations of docs/openapi.json by their first tag, and the fields of every problem."""
    document = json.loads((CHECKOUT / "docs" / "openapi.json").read_text("utf-8"))
    rows: list[str] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            text = (
                (operation.get("description") or operation.get("summary") or "")
                .strip()
                .partition("\n\n")[0]
                .replace("\n", " ")
            )
            rows.append(f"| `{method.upper()} {path}` | {text.replace('|', chr(92) + '|')} |")
    return "\n".join(
        [
            "# REST API",
            "",
            (
                "Written from the server's own description, `/api/v1/openapi.json`. Try each "
                "operation on [this server](/docs/api)."
            ),
            (
                "[Rights](rights.md) has the scope that each needs, "
                "[codes](codes.md#refused-requests) every refusal."
            ),
            "",
            "| operation | what it does |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )


def python_page() -> str:
    """The public names of `parity`, from their docstrings."""
    lines = [
        "# Python API",
        "",
        "Written from the docstrings. [Python](python.md) has examples with their output.",
        "",
    ]
    homes: dict[str, str] = parity._HOMES  # where each public name is defined
    for name in parity.__all__:
        lines += [f"::: {homes[name]}.{name}", ""]
    return "\n".join(lines)


def _checkout_path(uri: str) -> str:
    """The path in the checkout of a page of the site."""
    if uri == "index.md":
        return "README.md"
    return (
        uri
        if (CHECKOUT / uri).is_file() and not (CHECKOUT / "docs" / uri).is_file()
        else f"docs/{uri}"
    )


def _site_path(path: str) -> str:
    """The page or file of the site for a path in the checkout."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if Path(path).suffix in {".md", *_AS_THEY_ARE} else f"{path}.md"


def _target(page: str, link: str) -> str | None:
    """The path in the checkout to which a link of a page leads; None for another site, an anchor or
    a path of the server.
    """
    if not link or "://" in link or link.startswith(("/", "mailto:")):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return f"{path}/README.md" if (CHECKOUT / path / "README.md").is_file() else path


def _linked(page: str, text: str) -> Iterator[str]:
    for match in _LINK.finditer(_FENCE.sub("", text)):
        path = _target(page, match[2])
        if path is not None and (CHECKOUT / path).is_file():
            yield path


def _listing(path: str) -> str:
    """A page that shows a file."""
    text = (CHECKOUT / path).read_text("utf-8")
    return (
        "---\nsearch: {exclude: true}\n---\n# "
        f"{path}\n\n````{_LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n````\n"
    )
