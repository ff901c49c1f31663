"""Places that lie side by side without touching."""

from collections.abc import Sequence


def spread(places: Sequence[float], least: float, within: tuple[float, float]) -> list[float]:
    """Places at least so far apart and inside, each as near to its own as that allows; in the order
    given.
    """
    low, high = within
    least = min(least, (high - low) / max(1, len(places) - 1))
    order = sorted(range(len(places)), key=lambda index: places[index])
    groups = list[tuple[float, list[int]]]()  # where a group begins, and who is in it
    for index in order:
        begin, members = places[index], [index]
        while True:
            begin = min(max(begin, low), high - least * (len(members) - 1))
            if not groups or groups[-1][0] + least * len(groups[-1][1]) <= begin:
                break
            members = groups.pop()[1] + members
            begin = sum(
                places[member] - least * number for number, member in enumerate(members)
            ) / len(members)
        groups.append((begin, members))
    placed = [0.0] * len(places)
    for begin, members in groups:
        for number, index in enumerate(members):
            placed[index] = min(high, begin + least * number)
    return placed
