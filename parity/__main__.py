"""`python -m parity` is the command line."""

from parity.cli import main

main()
