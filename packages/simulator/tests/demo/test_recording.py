"""A night as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_simulator.demo.observations import Gone, Moment, NodeSeen, TrafficSeen
from tightship_simulator.demo.recording import Recorder, RecordError, read
from tightship_simulator.demo.running import Options

MOMENTS = [
    Moment(0.0, 21.0, NodeSeen("n1", "general", 4000, 8000, drain="Evicting", by="node-refiner")),
    Moment(1.5, 21.4, TrafficSeen("shop/web", None)),
    Moment(2.0, 21.5, Gone("node", "n1")),
]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path, options = tmp_path / "night.jsonl", Options(seconds=30, seed=3)
    with Recorder(path, options) as recorder:
        for moment in MOMENTS:
            recorder.take(moment)
    found, moments = read(path)
    assert (found, list(moments)) == (options, MOMENTS)


def test_a_file_that_is_no_record_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text("")
    with pytest.raises(RecordError, match=r"other\.jsonl: line 1"):
        read(path)
    path.write_text('{"seconds": 30}\n{"at": "late"}\n')
    with pytest.raises(RecordError, match=r"other\.jsonl: line 2"):
        list(read(path)[1])
