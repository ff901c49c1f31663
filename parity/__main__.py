"""`python -m parity` is the command line."""

from parity.cli.main import main

main()
