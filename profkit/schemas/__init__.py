"""JSON Schemas of the documents that profkit writes."""
