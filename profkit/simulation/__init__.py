"""A physical simulator of serving runs: the demo, the samples and tests with known truth."""
