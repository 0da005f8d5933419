"""What ``suggest`` prints: commands and patches that an HPA's user can apply, and queries for HPAs without one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hpa_builder import answer, hpa
from synthetic import truth

from hpa_scaler.annotations.queries import Query
from hpa_scaler.annotations.spec import ENABLE, PREFIX
from hpa_scaler.backtest.commands import proposals, proposed_specs, suggested
from hpa_scaler.backtest.fit import FloorSuggestions, suggest
from tightship.objects.autoscaling import ScaleTargetRef

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "august.yaml"


def written(path: Path) -> str:
    """A past of three days in which the HPA's metrics ask for a pod for each 4 requests a second."""
    rows = [(minute * 60, 100 + 60 * ((minute // 360) % 2) + minute % 7) for minute in range(3 * 1440)]
    path.write_text("\n".join(["time,rps,wanted", *(f"{at},{rate},{rate / 4}" for at, rate in rows)]), encoding="utf-8")
    return str(path)


def test_a_suggestion_is_a_command_and_two_patches_with_the_same_annotations(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents: list[FloorSuggestions] = []

    async def once(*given: Any) -> FloorSuggestions:
        """Fit the past once: three formats tell of it."""
        if not documents:
            documents.append(await suggested(*given))
        return documents[0]

    monkeypatch.setattr("hpa_scaler.backtest.commands.suggested", once)
    arguments = ("suggest", "-f", str(EXAMPLE), "--past", written(tmp_path / "web.csv"))
    ended = cli(*arguments, "-o", "json")
    assert ended.code == 0, ended.err
    [found] = json.loads(ended.out)["hpas"]
    annotations = {each["annotation"]: each["value"] for each in found["annotations"]}
    assert 3.5 <= float(annotations[f"{PREFIX}/{ENABLE}-requests-per-replica"]) <= 4
    assert yaml.safe_load(found["values"]) == {"autoscaling": {"annotations": annotations}}
    [patch] = yaml.safe_load(found["kustomize"])["patches"]
    thing = yaml.safe_load(patch["patch"])
    assert thing["metadata"] == {"name": "web", "namespace": "shop", "annotations": annotations}
    words = shlex.split(found["kubectl"])
    assert words[:7] == ["kubectl", "-n", "shop", "annotate", "--overwrite", "hpa", "web"]
    assert set(words[7:]) == {f"{name}-" if text is None else f"{name}={text}" for name, text in annotations.items()}
    assert found["kubectl"] in cli(*arguments).out
    assert "To write them" in cli(*arguments, "-o", "html").out


def test_a_past_that_does_not_tell_has_no_command(cli: Any, tmp_path: Path) -> None:
    rows = [f"{minute * 60},{25 + minute % 7}" for minute in range(240)]
    (tmp_path / "web.csv").write_text("\n".join(["time,rps", *rows]), encoding="utf-8")
    ended = cli("suggest", "-f", str(EXAMPLE), "--past", str(tmp_path / "web.csv"), "-o", "json")
    [found] = json.loads(ended.out)["hpas"]
    assert (found["sure"], found["kubectl"], found["annotations"]) == ("can't tell", None, [])
    assert "neither the HPA's own metrics nor its replicas" in found["why"]


def test_an_hpa_without_a_query_gets_the_one_that_answers_and_is_opted_in() -> None:
    known = truth(3, days=2)
    bare = msgspec.structs.replace(known.past.hpa, annotations={})
    past = msgspec.structs.replace(known.past, hpa=bare, proposed=True)
    entry = suggest(past, known.setup)
    names = [each.annotation for each in entry.annotations]
    assert names[:2] == [f"{PREFIX}/{ENABLE}", f"{PREFIX}/{ENABLE}-prometheus-query"]
    assert entry.proposed


class _Client:
    """Answers only queries that hold one of *words*."""

    def __init__(self, *words: str) -> None:
        self.words = words

    async def ask(self, queries: Any, deadline: float) -> dict[Query, Any]:
        del deadline
        return {query: answer(12.5 if any(word in query.text for word in self.words) else 0) for query in queries}


async def test_the_most_specific_request_rate_that_answers_is_proposed() -> None:
    client: Any = _Client("nginx_ingress", "http_requests_total")
    found = await proposed_specs(client, [hpa()], 1.0)
    assert "nginx_ingress_controller_requests" in found["shop/web"].queries[0].text
    assert 'exported_service="web"' in found["shop/web"].queries[0].text
    nothing: Any = _Client()
    assert await proposed_specs(nothing, [hpa()], 1.0) == {}


def test_a_name_that_no_api_server_allows_is_in_no_query() -> None:
    evil = msgspec.structs.replace(hpa(), target=ScaleTargetRef("Deployment", 'web"} or vector(1', "apps/v1"))
    assert proposals(evil) == []
