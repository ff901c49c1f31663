"""A card in two files: YAML, and next to it Markdown."""

from pathlib import Path

from parity.cards.card_file import AnyCard, card_yaml
from parity.cards.card_markdown import card_markdown
from parity.cli.terminal.output import write_file
from parity.cli.terminal.wrong_calls import UsageError


def check_card_path(path: str, option: str) -> None:
    """Raise UsageError for a file that is the Markdown's, or no YAML by its name."""
    if Path(path).suffix.lower() not in (".yaml", ".yml"):
        raise UsageError(f"{option} is {path}; expected a name such as card.yaml")


def write_card(path: str, card: AnyCard) -> str:
    """Write a card as YAML and as Markdown; the name of the Markdown."""
    twin = str(Path(path).with_suffix(".md"))
    write_file(path, card_yaml(card).encode())
    write_file(twin, card_markdown(card).encode())
    return twin
