"""One colour per phase and activity, the same in every figure and page, in a light and a dark theme.

The colours were chosen so that no two of one family come close under protanopia, deuteranopia or tritanopia, and so
that marks stand out from the background; tests measure both. No colour stands alone: figures label directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from profkit.words import Activity, HeadlinePart, Phase

if TYPE_CHECKING:
    from profkit.weekly.model import EventKind

ThemeName: TypeAlias = Literal["light", "dark"]
Tone: TypeAlias = Literal["better", "worse", "neutral", "unsure"]

PHASE_NAMES: Final[Mapping[Phase, str]] = {
    "draft": "draft",
    "verify": "verify",
    "accept": "accept",
    "draft_extend": "draft extend",
    "decode": "decode",
    "other": "other",
    "unlabelled": "unlabelled",
}
ACTIVITY_NAMES: Final[Mapping[Activity, str]] = {
    "compute": "compute",
    "allreduce": "all-reduce",
    "comm": "other comm",
    "memory": "copies",
    "idle": "idle",
}
HEADLINE_NAMES: Final[Mapping[HeadlinePart, str]] = {
    "draft": "draft compute",
    "verify_compute": "verify compute",
    "allreduce": "all-reduce",
    "other_comm": "other comm",
    "memory": "copies",
    "idle": "idle",
    "other": "other compute",
    "unlabelled": "unlabelled",
}
# The mark of a weekly event, as matplotlib names shapes, and the name of its colour in the CSS of pages.
EVENT_MARKS: Final[Mapping[EventKind, str]] = {
    "regression": "v",
    "improvement": "^",
    "environment": "s",
    "noise": "X",
    "missing": "o",
}
EVENT_COLOURS: Final[Mapping[EventKind, str]] = {
    "regression": "tone-worse",
    "improvement": "tone-better",
    "environment": "accent",
    "noise": "tone-unsure",
    "missing": "text",
}


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one theme as ``#rrggbb``; ``series`` is for lines that have no fixed meaning."""

    name: ThemeName
    background: str
    surface: str  # of cards and of the plotting area
    text: str
    muted: str
    grid: str
    accent: str
    phases: Mapping[Phase, str]
    activities: Mapping[Activity, str]
    tones: Mapping[Tone, str]
    series: tuple[str, ...]

    def headline(self, part: HeadlinePart) -> str:
        """The colour of one part of the headline."""
        match part:
            case "draft":
                return self.phases["draft"]
            case "verify_compute":
                return self.activities["compute"]
            case "allreduce" | "memory" | "idle":
                return self.activities[part]
            case "other_comm":
                return self.activities["comm"]
            case "other":
                return self.phases["other"]
            case "unlabelled":
                return self.phases["unlabelled"]


LIGHT: Final = Theme(
    name="light",
    background="#ffffff",
    surface="#f6f7f9",
    text="#1b1f24",
    muted="#59626d",
    grid="#e2e5e9",
    accent="#1565b0",
    phases={
        "draft": "#14a37f",
        "verify": "#4a36a0",
        "accept": "#c38c23",
        "draft_extend": "#1a604b",
        "decode": "#4168f8",
        "other": "#868b4c",
        "unlabelled": "#c9cdd2",
    },
    activities={
        "compute": "#1565b0",
        "allreduce": "#c2410c",
        "comm": "#e08e0b",
        "memory": "#955b84",
        "idle": "#c9cdd2",
    },
    tones={"better": "#14805f", "worse": "#c2410c", "neutral": "#59626d", "unsure": "#8a5a00"},
    series=("#1b1f24", "#1565b0", "#c2410c", "#0c7a5e", "#8f4f7b", "#7d6212"),
)
DARK: Final = Theme(
    name="dark",
    background="#14171b",
    surface="#1c2026",
    text="#e8eaed",
    muted="#a3abb5",
    grid="#30363d",
    accent="#6cb4f7",
    phases={
        "draft": "#3ae0b4",
        "verify": "#8a7ff5",
        "accept": "#f2e588",
        "draft_extend": "#35a52e",
        "decode": "#b4dcfa",
        "other": "#a08566",
        "unlabelled": "#474d55",
    },
    activities={
        "compute": "#4ca4f5",
        "allreduce": "#e0561f",
        "comm": "#fadb4a",
        "memory": "#f493b8",
        "idle": "#474d55",
    },
    tones={"better": "#4fcf9f", "worse": "#ff8552", "neutral": "#a3abb5", "unsure": "#e6b84d"},
    series=("#e8eaed", "#6cb4f7", "#ff8552", "#3ae0b4", "#f493b8", "#d9c46a"),
)
THEMES: Final[Mapping[ThemeName, Theme]] = {"light": LIGHT, "dark": DARK}


def linear(colour: str) -> tuple[float, float, float]:
    """A ``#rrggbb`` colour as linear sRGB in 0..1."""
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return r, g, b


def luminance(colour: str) -> float:
    """Relative luminance after WCAG 2."""
    r, g, b = linear(colour)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    """Contrast ratio after WCAG 2, from 1 to 21."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def text_on(colour: str) -> str:
    """Black or white, whichever reads better on ``colour``."""
    return "#ffffff" if contrast("#ffffff", colour) >= contrast("#101214", colour) else "#101214"


def _variables(theme: Theme) -> dict[str, str]:
    found = {
        "background": theme.background,
        "surface": theme.surface,
        "text": theme.text,
        "muted": theme.muted,
        "grid": theme.grid,
        "accent": theme.accent,
        **{f"phase-{k}": v for k, v in theme.phases.items()},
        **{f"on-phase-{k}": text_on(v) for k, v in theme.phases.items()},
        **{f"activity-{k}": v for k, v in theme.activities.items()},
        **{f"on-activity-{k}": text_on(v) for k, v in theme.activities.items()},
        **{f"tone-{k}": v for k, v in theme.tones.items()},
    }
    return {name.replace("_", "-"): value for name, value in found.items()}


def css_variables(theme: Theme) -> str:
    """The theme as CSS custom properties, one a line."""
    return "\n".join(f"  --{name}: {value};" for name, value in _variables(theme).items())


def event_colour(theme: Theme, kind: EventKind) -> str:
    """The colour of a weekly event as ``#rrggbb``."""
    return _variables(theme)[EVENT_COLOURS[kind]]
