"""Hooks of mkdocs (mkdocs.yml): what the site has in addition to docs/, and what its pages must not have.

Generated pages: the start page from README.md, the command line from the typer app, the REST API from docs/openapi.json, the Python API
from the docstrings. Files outside docs/ to which a page links become pages of their own, so that the site needs no other host.
Inline scripts become files, because the server's Content-Security-Policy allows none.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.main import get_command

import parity
from parity.cli.application import app
from parity.cli.terminal import ALL_OPTIONS

CHECKOUT = Path(__file__).resolve().parents[2]
CODES = "codes.md"
_CODE_ROW = re.compile(r"^\| `([A-Z][A-Z0-9_]+)` \|")
_LINK = re.compile(r"(\]\()([^)\s#]*)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^(```.*?^```$)", re.DOTALL | re.MULTILINE)
_INLINE_SCRIPT = re.compile(r"<script>(.+?)</script>", re.DOTALL)
_CANONICAL = re.compile(r'<link rel="canonical" href="[^"]*">')
_AS_THEY_ARE = frozenset({".csv", ".ipynb", ".npz", ".png", ".svg", ".zip"})
_LANGUAGES = {".py": "python", ".sh": "sh", ".yaml": "yaml", ".yml": "yaml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and every file outside docs/ that a page links to, directly or through another one."""
    for name, content in (("cli.md", cli_page()), ("rest.md", rest_page()), ("python-api.md", python_page())):
        files.append(File.generated(config, name, content=content))
    texts = [(_in_checkout(file.src_uri), file.content_string) for file in files if file.src_uri.endswith(".md")]
    texts.append(("README.md", (CHECKOUT / "README.md").read_text("utf-8")))
    files.append(File.generated(config, "index.md", content=texts[-1][1]))
    while texts:
        page, text = texts.pop()
        for path in _linked(page, text):
            uri = _in_site(path)
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
    here = _in_checkout(page.file.src_uri)

    def inside(match: re.Match[str]) -> str:
        path = _target(here, match[2])
        if path is None:
            return match[0]
        return match[1] + posixpath.relpath(_in_site(path), posixpath.dirname(page.file.src_uri)) + match[3]

    text = "".join(part if part.startswith("```") else _LINK.sub(inside, part) for part in _FENCE.split(markdown))
    return with_code_anchors(text) if page.file.src_uri == CODES else text


def with_code_anchors(markdown: str) -> str:
    """The page with an anchor in each row of its tables of codes, to which the dashboard's codes lead: its heading's, then the code."""
    section, lines = "", []
    for line in markdown.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ").lower().replace(" ", "-")
        lines.append(_CODE_ROW.sub(rf'| <a id="{section}-\1"></a>`\1` |', line))
    return "\n".join(lines)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Move inline scripts into files, name the search for screen readers, and drop the canonical link."""
    return _finished(output, config, posixpath.relpath(".", posixpath.dirname(page.url) or "."))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for the page of errors, whose links are absolute."""
    return _finished(output_content, config, "/docs") if template_name == "404.html" else output_content


def _finished(html: str, config: MkDocsConfig, root: str) -> str:
    named = html.replace('data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"')
    return without_inline_scripts(_CANONICAL.sub("", named), Path(config.site_dir), root)


def without_inline_scripts(html: str, site: Path, root: str) -> str:
    """The page with its inline scripts as files of the site, whose address from this page is `root`."""

    def as_file(match: re.Match[str]) -> str:
        name = f"assets/inline/{hashlib.sha256(match[1].encode()).hexdigest()[:12]}.js"
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(match[1], encoding="utf-8")
        return f'<script src="{root}/{name}"></script>'

    return _INLINE_SCRIPT.sub(as_file, html)


def cli_page() -> str:
    """Every command's help, as the terminal shows it."""
    lines = ["# Command line", "", "Written from the program itself. [Commands in overview](commands.md) says what each is for.", ""]
    for names, command in _commands(get_command(app), ("parity",)):
        context = click.Context(command, info_name=" ".join(names), terminal_width=80, max_content_width=80)
        context.meta[ALL_OPTIONS] = True
        lines += [f"## {' '.join(names)}", "", "```text", command.get_help(context).rstrip(), "```", ""]
    return "\n".join(lines)


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
            text = (operation.get("description") or operation.get("summary") or "").strip().partition("\n\n")[0].replace("\n", " ")
            rows.append(f"| `{method.upper()}` | `{path}` | {text.replace('|', chr(92) + '|')} |")
    return "\n".join(
        [
            "# REST API",
            "",
            "Written from the server's own description, `/api/v1/openapi.json`. Try each operation on [this server](/docs/api).",
            "[Who may do what](authorization.md) has the scope that each needs,",
            "[troubleshooting](troubleshooting.md#refused-requests) every refusal.",
            "",
            "| method | path | what it does |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def python_page() -> str:
    """The public names of `parity`, from their docstrings."""
    lines = ["# Python API", "", "Written from the docstrings. [Python](python.md) has examples with their output.", ""]
    homes: dict[str, str] = parity._HOMES  # where each public name is defined
    for name in parity.__all__:
        lines += [f"::: {homes[name]}.{name}", ""]
    return "\n".join(lines)


def _in_checkout(uri: str) -> str:
    """The path in the checkout of a page of the site."""
    if uri == "index.md":
        return "README.md"
    return uri if (CHECKOUT / uri).is_file() and not (CHECKOUT / "docs" / uri).is_file() else f"docs/{uri}"


def _in_site(path: str) -> str:
    """The page or file of the site for a path in the checkout."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if Path(path).suffix in {".md", *_AS_THEY_ARE} else f"{path}.md"


def _target(page: str, link: str) -> str | None:
    """The path in the checkout to which a link of a page leads; None for another site, an anchor or a path of the server."""
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
    return f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n````{_LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n````\n"
