"""A state of a tqdm bar, as it prints one."""

from collections.abc import Mapping

_BLOCKS = " ▏▎▍▌▋▊▉"
_WIDTH = 10


def tqdm_bar(text: str, done: int, total: int, postfix: Mapping[str, str] | None = None) -> str:
    """The state of a bar below a description, with what stands behind its times."""
    filled, part = divmod(int(done / total * _WIDTH * 8), 8)
    blocks = "█" * filled + (_BLOCKS[part] if filled < _WIDTH else "")
    after = "".join(f", {name}={value}" for name, value in (postfix or {}).items())
    before = f"{text}: " if text else ""
    share = f"{100 * done // total:3d}%"
    return f"{before}{share}|{blocks:<{_WIDTH}}| {done}/{total} [00:10<06:30,  1.00s/it{after}]"
