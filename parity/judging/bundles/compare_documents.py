"""Two JSON documents compared, value by value."""

import math
from collections.abc import Iterator

from parity.judging.bundles.server_record import printable
from parity.typed_json import shown

RELATIVE_TOLERANCE = 1e-9
_NUMBER = (int, float)


def compare_documents(stored: object, computed: object, where: str) -> Iterator[str]:
    """Lines that name every difference between two JSON values; floats agree to 1e-9 relative, all
    else exactly.
    """
    if isinstance(stored, dict) and isinstance(computed, dict):
        for key in sorted({*stored, *computed}):
            if key not in stored or key not in computed:
                yield (
                    f"{where}.{printable(key[:80])}: only in the "
                    f"{'bundle' if key in stored else 'recomputation'}"
                )
            else:
                yield from compare_documents(stored[key], computed[key], f"{where}.{key}")
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for index, (left, right) in enumerate(zip(stored, computed, strict=True)):
            yield from compare_documents(left, right, f"{where}[{index}]")
    elif (
        isinstance(stored, _NUMBER)
        and isinstance(computed, _NUMBER)
        and float in (type(stored), type(computed))
    ):
        if not math.isclose(stored, computed, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12):
            yield f"{where}: {shown(stored)} in the bundle, {shown(computed)} recomputed"
    elif stored != computed or type(stored) is not type(computed):
        yield f"{where}: {shown(stored)} in the bundle, {shown(computed)} recomputed"
