"""The parts of README.md that are real output: ``python -m tests.readme_excerpt`` writes them anew."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from profkit.cli.app import run
from tests.paths import ROOT

STORY = ROOT / "sample_logs" / "kimi-k2.5-tp8"
README = ROOT / "README.md"


def plan_excerpt() -> str:
    """Verdict and figures of the reference story's plan, as a quotation."""
    arms = ["plan", str(STORY / "eagle3"), "--baseline", str(STORY / "baseline"), "--also", str(STORY / "ngram")]
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        assert run([*arms, "-o", f"{folder}/plan", "-q"]) == 0
        plan = Path(folder, "plan", "plan.md").read_text(encoding="utf-8")
    (verdict,) = re.findall(r"^## 1\. Verdict\n(.*?)^A \*cycle\* is", plan, flags=re.DOTALL | re.MULTILINE)
    quoted = "\n".join(f"> {line}".rstrip() for line in verdict.strip().splitlines())
    return re.sub(r"(>\n){2,}", ">\n", quoted)


def attribution_excerpt() -> str:
    """Title and bars of the EAGLE-3 run's attribution, and its dearest collective."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out):
        assert run(["attribute", str(STORY / "eagle3"), "-q"]) == 0
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    lines = [line.rstrip() for line in out.buffer.getvalue().decode().splitlines()]
    bars = lines[: lines.index("", lines.index("") + 1)]
    calls = [line for line in lines if line.startswith(("  us per call", "  verify all_reduce"))]
    return "\n".join([*bars, "", *calls])


def refreshed(text: str) -> str:
    """README text with its excerpts made anew."""
    parts = {
        r"(<!-- excerpt -->\n).*?(\n<!-- end -->)": plan_excerpt(),
        r"(```\n)Decode cycle of batch.*?(\n```)": attribution_excerpt(),
    }
    for pattern, excerpt in parts.items():
        (found,) = re.finditer(pattern, text, flags=re.DOTALL)
        text = text[: found.end(1)] + excerpt + text[found.start(2) :]
    return text


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text(encoding="utf-8")), encoding="utf-8")
