"""Reports: from results to documents. They compute nothing."""
