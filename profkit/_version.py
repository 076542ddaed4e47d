"""The version: one place, read by the build and by ``profkit --version``."""

__version__ = "0.1.0"
