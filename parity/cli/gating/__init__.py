"""`parity gate`: the command, its policy (`parity.yaml`), and its report."""
