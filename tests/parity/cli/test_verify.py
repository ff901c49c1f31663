"""`parity verify`: a bundle gives the verdict that it states, or one line that says what is wrong."""

from collections.abc import Callable
from pathlib import Path

Run = Callable[..., tuple[int, str, str]]


def test_bundle_verify_and_junit(tmp_path: Path, files: dict[str, str], run: Run) -> None:
    bundle, junit = str(tmp_path / "out.zip"), tmp_path / "out.xml"
    assert run("compare", files["fp8"], files["nvfp4"], "--planned-steps", "1500", "--bundle", bundle, "--junit", str(junit))[0] == 1
    assert "<failure" in junit.read_text()
    code, out, _ = run("verify", bundle)
    assert (code, out.startswith("identical")) == (0, True)
    Path(bundle).write_bytes(b"nothing")
    code, out, err = run("verify", bundle)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert run("compare", files["fp8"], files["nvfp4"], "--bundle", "/nowhere/out.zip")[0] == 2
