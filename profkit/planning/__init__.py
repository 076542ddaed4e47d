"""The plan: levers, gates, order of experiments, checks."""
