"""What options and files state: arms with their runs, policy, columns, families, tables."""
