"""Comparison of runs: statistics and verdicts."""
