"""Server logs of every SGLang release: lines to tables."""

from profkit.parsers.log.files import find_logs, in_rotation_order
from profkit.parsers.log.reading import LogStream, read_log

__all__ = ["LogStream", "find_logs", "in_rotation_order", "read_log"]
