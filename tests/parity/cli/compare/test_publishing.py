"""`parity compare --html` and `--open`: one file that needs nothing else, and a browser only where
there is one.
"""

import base64
import hashlib
import re
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that a browser was asked to open, on a machine with a screen."""
    addresses: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    return addresses


def test_a_page_is_written_and_not_opened_unless_asked(
    files: dict[str, str], run: Run, tmp_path: Path, opened: list[str]
) -> None:
    path = tmp_path / "page.html"
    call = (
        "compare",
        files["fp8"],
        files["nvfp4"],
        files["mxfp8"],
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--html",
        str(path),
    )
    assert run(*call) == (1, run(*call)[1], f"written: {path}\n")
    assert opened == []
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    assert "default-src 'none'" in text
    assert text.count('<figure class="pic') == 2  # the gaps, and in the details the losses
    assert text.count("<tr class=") == text.count('<svg class="fx"') == 2
    assert run(*call, "--open")[2] == f"opened: {path}\n"
    assert opened == [path.as_uri()]


def test_without_a_screen_the_path_is_printed(
    files: dict[str, str], run: Run, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    code, _, err = run(
        "compare", files["fp8"], files["nvfp4"], "--planned-steps", "1500", "--open", "--json"
    )
    assert (code, opened) == (1, [])
    path = Path(err.removeprefix("written: ").strip())
    assert path.read_text().startswith("<!doctype html>")
    path.unlink()


def test_a_file_that_cannot_be_written_is_one_line(files: dict[str, str], run: Run) -> None:
    code, out, err = run("compare", files["fp8"], files["nvfp4"], "--html", "/nowhere/page.html")
    assert (code, out, err) == (
        2,
        "",
        "parity: /nowhere/page.html: cannot be written (no such file or folder)\n",
    )


def test_the_script_alone_may_run(files: dict[str, str], run: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    run(
        "compare",
        files["fp8"],
        files["nvfp4"],
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--html",
        str(path),
    )
    text = path.read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in text
    assert len(text) < 150_000


def test_a_name_cannot_write_html(files: dict[str, str], run: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    name = "</script><script>alert(1)"
    run(
        "compare",
        files["fp8"],
        f"{name}={files['nvfp4']}",
        "--planned-steps",
        "1500",
        "--schedule",
        "decayed",
        "--html",
        str(path),
    )
    assert "<script>alert" not in path.read_text(encoding="utf-8")
