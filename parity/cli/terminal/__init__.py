"""Words and options that all commands share, before and after they do anything."""
