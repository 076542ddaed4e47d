"""What server logs mean: speed by batch size, acceptance, step time, what went wrong."""

from profkit.serving.interpret import EXCLUDING, Interpreter, interpret, steady_decode, steady_mask
from profkit.serving.summary import Summariser, summarise

__all__ = ["EXCLUDING", "Interpreter", "Summariser", "interpret", "steady_decode", "steady_mask", "summarise"]
