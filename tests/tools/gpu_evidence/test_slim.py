"""Cutting a library to one generation: what is kept, what is cleared, and that nothing else
changes.
"""

import base64
import hashlib
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.gpu_evidence.slim import NoCodeError, keep_only, slim_wheel

LIBRARY = "transformer_engine/wheel_lib/libtransformer_engine.so"
RECORD = "transformer_engine_cu13-2.20.2.dist-info/RECORD"
entries = st.lists(
    st.tuples(st.sampled_from([75, 80, 90, 100, 120]), st.binary(max_size=40)), max_size=6
)
# No byte of the magic, so that the text around holds none by chance.
around = st.binary(max_size=30).map(lambda data: data.replace(b"\x50", b"\x51"))


def entry(capability, payload):
    head = bytearray(64)
    struct.pack_into("<HHIQ", head, 0, 2, 0x101, len(head), len(payload))
    struct.pack_into("<I", head, 28, capability)
    return bytes(head) + payload


def fat_binary(parts):
    body = b"".join(entry(*part) for part in parts)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


@given(st.lists(st.tuples(around, entries), min_size=1, max_size=3), around)
def test_only_the_code_of_other_generations_is_cleared(binaries, after):
    def library(cleared):
        parts = []
        for before, fatbin_parts in binaries:
            kept_parts = [
                (capability, payload if capability == 90 or not cleared else bytes(len(payload)))
                for capability, payload in fatbin_parts
            ]
            parts += [before, fat_binary(kept_parts)]
        return b"".join(parts) + after

    data = bytearray(library(cleared=False))
    every = [part for _, fatbin_parts in binaries for part in fatbin_parts]
    kept_bytes, cleared = keep_only(data, 90)
    assert data == library(cleared=True)
    assert kept_bytes == sum(len(payload) for capability, payload in every if capability == 90)
    assert kept_bytes + cleared == sum(len(payload) for _, payload in every)


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_magic_without_a_whole_binary_behind_it_is_left_alone(cut):
    data = bytearray(fat_binary([(80, b"code" * 8)]))[:-cut]
    before = bytes(data)
    assert keep_only(data, 90) == (0, 0)
    assert data == before


def wheel(path, library):
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(LIBRARY, library)
        made.writestr("transformer_engine/__init__.py", "")
        lines = (
            f"{LIBRARY},sha256=old,{len(library)}",
            "transformer_engine/__init__.py,sha256=own,0",
            f"{RECORD},,",
        )
        made.writestr(RECORD, "".join(f"{line}\n" for line in lines))
    return path


def test_a_wheel_is_packed_again_with_all_of_its_files(tmp_path):
    library = b"\x7fELF" + fat_binary([(90, b"\x01" * 50), (100, b"\x02" * 5000)])
    source = wheel(tmp_path / "core.whl", library)
    made = slim_wheel(source, tmp_path / "slim", 90)
    with zipfile.ZipFile(source) as one, zipfile.ZipFile(made) as other:
        assert one.namelist() == other.namelist()
        assert other.testzip() is None
        content = other.read(LIBRARY)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
        assert other.read(RECORD) == one.read(RECORD).replace(b"sha256=old", b"sha256=" + digest)
    assert len(content) == len(library)
    assert (content.count(b"\x01" * 50), content.count(b"\x02")) == (
        1,
        library.count(b"\x02") - 5000,
    )
    assert made.stat().st_size < 2000


def test_a_generation_without_code_is_refused(tmp_path):
    source = wheel(tmp_path / "core.whl", fat_binary([(90, b"code")]))
    with pytest.raises(NoCodeError, match=r"no code for SM 12\.0"):
        slim_wheel(source, tmp_path / "slim", 120)
    assert list((tmp_path / "slim").iterdir()) == []
