"""Tables of one run: CSV and its relatives, Parquet, NumPy archives."""
