"""Opening files: every compression, every kind of damage, no bomb."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import pytest
import zstandard

from profkit.errors import InputError
from profkit.parsers import opening
from profkit.parsers.opening import ByteSource
from profkit.parsers.trace import read_traces
from tests.paths import SAMPLES

TEXT = b"".join(b"[2026-01-02 03:04:05] line %d\n" % n for n in range(20_000))


def zipped(*members: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, member in enumerate(members):
            archive.writestr(f"{number}.log", member)
    return sink.getvalue()


FORMS = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "gzip_members": gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]),
    "gzip_padded": gzip.compress(TEXT) + b"\0" * 512,
    "zstd": zstandard.compress(TEXT),
    "zip": zipped(TEXT),
    "zip_members": zipped(TEXT[:1000], TEXT[1000:]),
}


def read(path: Path) -> tuple[bytes, list[str]]:
    source = ByteSource(path)
    data = b"".join(source.chunks(100_000))
    return data, [problem.kind for problem in source.problems]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_bytes(form: str, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(FORMS[form])
    assert read(path) == (TEXT, [])
    source = ByteSource(path)
    assert source.head() == TEXT[: 64 << 10]
    assert b"".join(source.chunks()) == TEXT


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_cut_data_keep_what_came_before(form: str, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(FORMS[form][: len(FORMS[form]) * 2 // 3])
    data, problems = read(path)
    assert len(data) > len(TEXT) // 4
    assert TEXT.startswith(data)
    assert problems == ["truncated"]


def test_garbage_behind_the_data_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(TEXT) + b"garbage")
    assert read(path) == (TEXT, ["trailing_garbage"])


def test_damage_inside_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "x.log.gz"
    broken = bytearray(gzip.compress(bytes(range(256)) * 8000, 0))
    broken[len(broken) // 2 : len(broken) // 2 + 100_000] = b"\xff" * 100_000
    path.write_bytes(bytes(broken))
    _, problems = read(path)
    assert problems in (["corrupt"], ["truncated"])


def test_hopeless_input_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"\x1f\x8b" + b"\xff" * 100)
    with pytest.raises(InputError, match="broken gzip"):
        read(path)
    path.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(InputError, match="broken zip"):
        read(path)
    with pytest.raises(InputError, match="No such file"):
        ByteSource(tmp_path / "none")
    with pytest.raises(InputError, match="directory"):
        ByteSource(tmp_path)
    with pytest.raises(InputError, match="pipe"):
        list(ByteSource("-", stream=io.BytesIO(FORMS["zip"])).chunks())


def test_a_bomb_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "BOMB_FLOOR", 8 << 20)
    for name, packed in (
        ("gzip", gzip.compress(b"\0" * (64 << 20))),
        ("zstd", zstandard.compress(b"\0" * (256 << 20))),
    ):
        path = tmp_path / name
        path.write_bytes(packed)
        source = ByteSource(path)
        size = sum(len(chunk) for chunk in source.chunks())
        assert size < 48 << 20, name
        assert [problem.kind for problem in source.problems] == ["decompression_bomb"]


def test_streams_need_no_size() -> None:
    source = ByteSource("-", stream=io.BytesIO(FORMS["gzip"]))
    assert b"".join(source.chunks()) == TEXT
    assert source.size is None


def test_empty(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"")
    assert read(path) == (b"", [])


@pytest.mark.parametrize("packed", [False, True])
def test_a_log_given_as_a_trace_is_called_a_log(packed: bool, tmp_path: Path) -> None:
    log = (SAMPLES / "kimi-k2.5-tp8" / "eagle3" / "server.log").read_bytes()
    path = tmp_path / ("server.log.gz" if packed else "server.log")
    path.write_bytes(gzip.compress(log) if packed else log)
    with pytest.raises(
        InputError, match=r"server\.log(\.gz)?: holds a server log and no trace; `profkit parse` reads it"
    ):
        read_traces([str(path)])
