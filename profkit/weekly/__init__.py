"""The history of a store, week by week: what changed, why, and what to do next."""
