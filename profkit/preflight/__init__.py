"""Before an analysis: which questions the files at hand can answer, and what to record for the others."""

from profkit.preflight.diagnosis import diagnose
from profkit.preflight.result import Answer, Capture, Diagnosis

__all__ = ["Answer", "Capture", "Diagnosis", "diagnose"]
