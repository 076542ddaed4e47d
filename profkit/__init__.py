"""profkit: where the time of an LLM server's decode cycles goes, and what to do about it."""

from profkit._version import __version__

__all__ = ["__version__"]
