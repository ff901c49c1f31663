"""`python -m parity` is the command line."""

from parity.cli.application import main

main()
