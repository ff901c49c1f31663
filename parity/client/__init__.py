"""The client of a server. `run` and the command line (`parity.cli.terminal.shared_options`) read
PARITY_URL and PARITY_TOKEN.
"""

# Apart from the client, whose import takes a while.
DEFAULT_URL = "http://127.0.0.1:8321"
