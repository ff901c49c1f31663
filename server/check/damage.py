"""What the check of the record found at one place, and what can be done."""

from parity.frozen import frozen

BACKUP = "a backup of the database from before the damage has it (docs/operate.md)"


@frozen
class Damage:
    """A part of the record that is not as it was written, or cannot be read: where it is and what
    is wrong, in one sentence, and what can be done, the best first.
    """

    what: str
    remedies: tuple[str, ...]


@frozen
class Checked:
    """What was read of one part of the record: how many pieces (`kind` says of what), how many of
    them have no digest or checksum, and the damage.
    """

    kind: str
    pieces: int
    unchecked: int = 0
    damage: tuple[Damage, ...] = ()
