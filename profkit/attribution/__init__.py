"""Attribution: every decode cycle of every rank, split by phase and activity."""
