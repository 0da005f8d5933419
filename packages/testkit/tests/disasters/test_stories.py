"""Stories that once showed a bug, of a controller or of the observer: each runs again, and must break no promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_testkit.disasters.run import run
from tightship_testkit.disasters.scenario import read

pytestmark = pytest.mark.virtual_time

STORIES = sorted((Path(__file__).parent / "stories").glob("*.json"))


@pytest.mark.slow
@pytest.mark.takes(3)
@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_story_that_showed_a_bug_breaks_no_promise_any_more(story: Path) -> None:
    assert [str(each) for each in run(read(story)).new] == []
