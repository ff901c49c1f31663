"""Jobs on a server: queue one, follow it, print its verdicts, and list what is on record."""
