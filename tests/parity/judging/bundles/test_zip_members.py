"""A hostile zip file is refused in one line, within a second and with little memory."""

import io
import subprocess
import sys
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.judging.bundles import zip_members
from parity.judging.bundles.zip_members import UNREADABLE, ArchiveError, read_members

Write = Callable[[zipfile.ZipFile], object]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(*steps: Write, **options: object) -> Path:
        path = tmp_path / "x.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as zipped:  # type: ignore[call-overload]
            for step in steps:
                step(zipped)
        return path

    return write


def member(name: str, data: bytes = b"{}") -> Write:
    return lambda zipped: zipped.writestr(name, data)


def blanks(name: str, mebibytes: int) -> Write:
    def write(zipped: zipfile.ZipFile) -> None:
        with zipped.open(name, "w") as stream:
            for _ in range(mebibytes):
                stream.write(bytes(1 << 20))

    return write


def patched(path: Path, change: Callable[[bytearray, int], None]) -> Path:
    """The file with a change to the first entry of its directory."""
    data = bytearray(path.read_bytes())
    change(data, data.index(b"PK\x01\x02"))
    path.write_bytes(data)
    return path


def refused(path: Path) -> str:
    tracemalloc.start()
    with pytest.raises((ArchiveError, *UNREADABLE)) as error:
        read_members(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20
    return str(error.value)


def test_what_is_written_is_read(written: Callable[..., Path]) -> None:
    path = written(
        member("manifest.json", b"{}"), member("series/000-000-00.npy", bytes(range(256)) * 99)
    )
    assert read_members(path) == {
        "manifest.json": b"{}",
        "series/000-000-00.npy": bytes(range(256)) * 99,
    }


def test_blanks_are_refused_before_they_are_inflated(written: Callable[..., Path]) -> None:
    assert "expected at most 50 times its size" in refused(
        written(blanks("series/000-000-00.npy", 128))
    )


def test_several_members_count_together(written: Callable[..., Path]) -> None:
    assert "expected at most 50 times its size" in refused(
        written(*(blanks(f"series/{i:03}.npy", 16) for i in range(5)))
    )


def test_few_blanks_are_no_bomb(written: Callable[..., Path]) -> None:
    """A constant column deflates 700-fold: a short run of one is an honest bundle."""
    assert (
        len(read_members(written(blanks("series/000-000-00.npy", 4)))["series/000-000-00.npy"])
        == 4 << 20
    )


def test_a_member_that_is_longer_than_declared_is_not_inflated(
    written: Callable[..., Path],
) -> None:
    path = written(blanks("series/000-000-00.npy", 128))

    def declare_little(data: bytearray, entry: int) -> None:
        data[entry + 24 : entry + 28] = (100).to_bytes(4, "little")

    refused(patched(path, declare_little))


def test_a_member_that_is_shorter_than_declared(written: Callable[..., Path]) -> None:
    path = written(member("a.json", b"{}"))

    def declare_more(data: bytearray, entry: int) -> None:
        data[entry + 16 : entry + 20] = zlib.crc32(b"{}").to_bytes(4, "little")
        data[entry + 24 : entry + 28] = (7).to_bytes(4, "little")

    refused(patched(path, declare_more))


@pytest.mark.parametrize(
    "name",
    ["../a.json", "/etc/passwd", "a/b/c.json", "A.json", "a\nb", "x" * 300, "a/", "\u202egnp.json"],
)
def test_a_name_that_no_bundle_has(name: str, written: Callable[..., Path]) -> None:
    line = refused(written(member(name)))
    assert line.isascii()
    assert len(line) < 500


def test_a_name_twice(written: Callable[..., Path], recwarn: pytest.WarningsRecorder) -> None:
    assert "manifest.json is in it twice" in refused(
        written(member("manifest.json"), member("manifest.json", b"[]"))
    )
    assert len(recwarn) == 1  # zipfile's own, when the file is made


def test_an_encrypted_member(written: Callable[..., Path]) -> None:
    def encrypt(data: bytearray, entry: int) -> None:
        data[entry + 8] |= 1

    assert "encrypted" in refused(patched(written(member("manifest.json")), encrypt))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_another_compression(method: int, written: Callable[..., Path]) -> None:
    assert "compressed by method" in refused(
        written(lambda zipped: zipped.writestr("manifest.json", b"{}", method))
    )


def test_a_manifest_beyond_its_limit(written: Callable[..., Path]) -> None:
    assert "manifest.json has 5,242,880 bytes" in refused(written(blanks("manifest.json", 5)))
    assert "verdict.json has 17,825,792 bytes" in refused(written(blanks("verdict.json", 17)))


def test_too_many_members(written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_members, "MAX_MEMBERS", 10)
    assert "11 members" in refused(written(*(member(f"{i}.json") for i in range(11))))

    def claim_one(data: bytearray, _: int) -> None:
        end = data.index(b"PK\x05\x06")
        data[end + 8 : end + 12] = b"\1\0\1\0"

    assert "11 members" in refused(
        patched(written(*(member(f"{i}.json") for i in range(11))), claim_one)
    )


def test_a_large_directory_is_not_read(
    written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_members, "MAX_DIRECTORY_BYTES", 100)
    assert "a directory of" in refused(written(*(member(f"{i}.json") for i in range(5))))


def test_a_comment_and_zip64_are_refused(written: Callable[..., Path]) -> None:
    refused(written(lambda zipped: setattr(zipped, "comment", b"hello")))

    def force(zipped: zipfile.ZipFile) -> None:
        zipped.writestr("manifest.json", b"{}")

    path = written(force)
    data = path.read_bytes()
    end = data.index(b"PK\x05\x06")
    record = b"PK\x06\x06" + (44).to_bytes(8, "little") + bytes(44)
    locator = b"PK\x06\x07" + bytes(4) + end.to_bytes(8, "little") + (1).to_bytes(4, "little")
    path.write_bytes(data[:end] + record + locator + data[end:])
    assert "ZIP64" in refused(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut(share: float, written: Callable[..., Path]) -> None:
    path = written(member("manifest.json", b"{}" * 5000), member("verdict.json", b"[]" * 5000))
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    refused(path)


def test_a_damaged_member(written: Callable[..., Path]) -> None:
    path = written(member("manifest.json", bytes(range(256)) * 100))
    data = bytearray(path.read_bytes())
    data[80] ^= 0xFF
    path.write_bytes(data)
    refused(path)


def test_verify_refuses_200_mib_of_blanks_in_little_memory(tmp_path: Path) -> None:
    """The whole command, in a process of its own: its memory stays near that of Python with NumPy
    and SciPy.
    """
    deflater = zlib.compressobj(1, zlib.DEFLATED, -15)
    piece = b" " * (1 << 20)
    crc, buffer = 0, io.BytesIO()
    for _ in range(200):
        buffer.write(deflater.compress(piece))
        crc = zlib.crc32(piece, crc)
    buffer.write(deflater.flush())
    content, size, name = buffer.getvalue(), 200 << 20, b"manifest.json"
    common = b"\x14\0\0\0\x08\0\0\0\0\0" + b"".join(
        n.to_bytes(4, "little") for n in (crc, len(content), size)
    )
    local = b"PK\x03\x04" + common + len(name).to_bytes(2, "little") + b"\0\0" + name
    entry = b"PK\x01\x02\x14\0" + common + len(name).to_bytes(2, "little") + bytes(16) + name
    offset = len(local) + len(content)
    end = (
        b"PK\x05\x06\0\0\0\0\1\0\1\0"
        + len(entry).to_bytes(4, "little")
        + offset.to_bytes(4, "little")
        + b"\0\0"
    )
    path = tmp_path / "bomb.zip"
    path.write_bytes(local + content + entry + end)
    script = (
        "import resource, sys, time; from parity.cli import main; from parity.cli import "
        "application;"
        "start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: main(['verify', sys.argv[1]])\n"
        "except SystemExit as left: code = left.code\n"
        "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "print(code, time.perf_counter() - start, grown)"
    )
    process = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    code, _seconds, grown = process.stdout.split()
    assert code == "2"
    assert process.stderr.count("\n") == 1
    assert "manifest.json has 209,715,200 bytes" in process.stderr
    assert int(grown) < 64 << 10  # KiB


def test_a_directory_of_many_members_is_refused_at_once(written: Callable[..., Path]) -> None:
    path = written(*(member(f"{i}.json", b"") for i in range(10_001)))
    start = time.process_time()
    refused(path)
    assert time.process_time() - start < 5.0
