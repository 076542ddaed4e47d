"""Collectives across ranks: matching, clocks, transfer and wait, cost models."""
