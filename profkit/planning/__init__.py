"""Decisions: the catalogue of levers, gates, forecasts, consistency checks and the plan."""
