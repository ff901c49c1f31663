"""The command `gate`: its verdict, from files or a server, and the reports that it leaves."""
