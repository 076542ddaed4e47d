"""What viewers show: which cycles, on which clock, which GPU ops, as plain rows."""
