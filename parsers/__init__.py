"""Parsers: from a file to tables. Each module knows one format and nothing else."""
