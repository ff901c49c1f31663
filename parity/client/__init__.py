"""The client of a server; PARITY_URL or an option says where that is."""

# Apart from the client, whose import takes a while.
DEFAULT_URL = "http://127.0.0.1:8321"
