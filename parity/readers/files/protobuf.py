"""The fields of a protobuf message, without its schema."""

from collections.abc import Iterator

_LENGTHS = {0: 0, 1: 8, 5: 4}


def message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value of a protobuf message: varints as int, all else as bytes. Raises
    IndexError for bytes that are no message.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        length = _LENGTHS.get(kind)
        if kind == 2:
            length, at = _varint(data, at)
        if length is None or at + length > len(data):
            raise IndexError(f"field kind {kind} at byte {at}")
        yield key >> 3, data[at : at + length]
        at += length


def submessages(data: bytes, field: int) -> Iterator[bytes]:
    """The messages (or texts) in a field of a message."""
    return (
        value
        for number, value in message_fields(data)
        if number == field and isinstance(value, bytes)
    )


def signed_64(value: int) -> int:
    """A varint as the signed number of 64 bits that it stands for."""
    return value - (1 << 64) if value >> 63 else value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), at
        shift += 7
        if shift > 63:
            raise IndexError("a varint of more than 10 bytes")
