"""The look of figures: colours that stay apart, files that repeat, labels that cannot hurt."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from profkit.reports import palette, style
from profkit.words import ACTIVITIES, HEADLINE_PARTS, PHASES

# Machado, Oliveira, Fernandes 2009: severity 1.0, on linear sRGB.
VISION = {
    "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
JUST_APART = 20.0  # CIE 1976 distance; 2.3 is what an eye can just tell


def seen(colour: str, vision: str) -> np.ndarray:
    """CIELAB coordinates of a colour as seen."""
    rgb = np.clip(np.array(VISION[vision]) @ np.array(palette.linear(colour)), 0, 1)
    xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]) @ rgb
    f = [np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz / np.array([0.9505, 1.0, 1.0888])]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("theme", palette.THEMES.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("vision", VISION)
def test_colours_of_one_family_stay_apart(theme: style.Theme, vision: str) -> None:
    assert tuple(theme.phases) == PHASES
    assert tuple(theme.activities) == ACTIVITIES
    for family in (theme.phases, theme.activities):
        for (a, one), (b, other) in itertools.combinations(family.items(), 2):
            distance = float(np.linalg.norm(seen(one, vision) - seen(other, vision)))
            assert distance >= JUST_APART, (a, b, distance)


@pytest.mark.parametrize("theme", palette.THEMES.values(), ids=lambda t: t.name)
def test_contrast(theme: style.Theme) -> None:
    for colour in (theme.text, theme.muted, theme.accent, *theme.tones.values(), *theme.series):
        for ground in (theme.background, theme.surface):
            assert palette.contrast(colour, ground) >= 4.5, (colour, ground)
    for name, colour in (*theme.phases.items(), *theme.activities.items()):
        least = 1.5 if name in ("idle", "unlabelled") else 2.2  # what is nothing may recede
        assert palette.contrast(colour, theme.background) >= least, name
        assert palette.contrast(palette.text_on(colour), colour) >= 4.5, name
    assert all(theme.headline(part).startswith("#") for part in HEADLINE_PARTS)
    assert palette.css_variables(theme).count("--") == 6 + 2 * (len(PHASES) + len(ACTIVITIES)) + 4


def drawn(theme: style.Theme) -> Figure:
    figure, axes = style.figure(6, 2, title="A cycle", unit="ms", grid="x")
    bar = [(style.text(p), 1.0, theme.phases[p]) for p in PHASES]
    style.stacked_bar(axes, 0, bar, total=7.0)
    style.label_end(axes, 7, 0, style.text("$\\frac{1}{"), theme.text)
    style.label_end(axes, 3, 0, style.text("<b>draft</b> $x_1$ \x1b[31m"), theme.text)
    return figure


@pytest.mark.parametrize("theme", palette.THEMES.values(), ids=lambda t: t.name)
def test_same_figure_same_bytes_and_nothing_from_outside(theme: style.Theme, tmp_path: Path) -> None:
    digests = set()
    for again in range(2):
        with style.look(theme):
            figure = drawn(theme)
            for suffix in (".svg", ".png"):
                style.save(figure, tmp_path / f"{again}{suffix}")
        digests.add(tuple(hashlib.sha256((tmp_path / f"{again}{s}").read_bytes()).digest() for s in (".svg", ".png")))
    assert len(digests) == 1
    text = (tmp_path / "0.svg").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "&lt;b&gt;draft" in text
    assert "\x1b" not in text
    assert "<dc:date>" not in text
    assert "Verdana" in text


def test_settings_come_back_and_suffixes_are_checked(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    with style.look(style.DARK):
        assert mpl.rcParams["text.color"] == style.DARK.text
        figure, panels = style.grid_of(3, 6, 4, columns=2)
        assert len(panels) == 3
        with pytest.raises(ValueError, match="SVG or PNG"):
            style.save(figure, tmp_path / "x.pdf")
    assert dict(mpl.rcParams) == before
