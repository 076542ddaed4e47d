"""The store: results of runs as a folder of Parquet, without locks."""
