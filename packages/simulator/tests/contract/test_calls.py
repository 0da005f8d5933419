"""No call of the controllers is without a contract: their code is read, and each place that asks is named here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
SOURCES = ("common/src/tightship", "node-compactor/src", "node-refiner/src", "hpa-scaler/src")
TRANSPORT = "tightship/kube/connection.py"
ASKS = {"request", "stream", "_send"}

Site = tuple[str, str, str]
"""Module, verb, and the expression of the content type, empty where it is that of plain JSON."""

CONTRACTS: dict[Site, tuple[str, ...]] = {
    ("tightship/draining/writing.py", "DELETE", ""): ("test_only_the_pod_of_the_uid_is_deleted",),
    ("tightship/draining/writing.py", "POST", ""): (
        "test_an_eviction_without_a_budget_is_granted_and_tells_why_on_the_pod",
        "test_a_budget_that_allows_none_refuses_with_its_counts_and_without_a_time",
        "test_a_budget_that_was_changed_asks_to_come_back",
        "test_a_budget_that_cannot_be_computed_any_more_says_so",
        "test_a_budget_that_was_never_computed_asks_to_come_back",
        "test_a_pod_with_two_budgets_is_refused_without_a_reason_also_in_a_dry_run",
        "test_another_pod_of_the_same_name_is_not_evicted",
        "test_a_pod_that_is_gone_is_not_found",
        "test_in_a_namespace_that_is_going_nothing_is_evicted",
    ),
    ("tightship/draining/writing.py", "GET", ""): (
        "test_of_several_that_race_one_wins",
        "test_pods_are_selected_by_node_and_phase_and_name",
    ),
    ("tightship/draining/writing.py", "PATCH", "'application/merge-patch+json'"): (
        "test_a_claim_is_one_merge_patch_of_annotation_taint_and_cordon",
        "test_null_takes_away_annotation_taints_and_cordon",
        "test_a_patch_of_an_older_version_is_a_conflict_and_changes_nothing",
        "test_a_patch_of_what_is_gone_makes_nothing_new",
    ),
    ("tightship/landing/controller.py", "GET", ""): ("test_one_config_map_is_listed_and_watched_by_its_name",),
    ("tightship/landing/controller.py", "PATCH", "'application/merge-patch+json'"): (
        "test_a_patch_of_an_older_version_is_a_conflict_and_changes_nothing",
    ),
    ("tightship/deletion_costs/writes.py", "GET", ""): ("test_pods_are_selected_by_node_and_phase_and_name",),
    ("tightship/deletion_costs/writes.py", "PATCH", "kind"): (
        "test_a_deletion_cost_is_written_beside_its_mark_and_removed_only_while_it_is_ours",
        "test_a_patch_of_an_older_version_is_a_conflict_and_changes_nothing",
    ),
    ("tightship/kube/leases.py", "GET", ""): (
        "test_a_lease_is_created_read_and_replaced",
        "test_leases_are_found_by_name",
    ),
    ("tightship/kube/leases.py", "POST", ""): ("test_a_lease_is_created_read_and_replaced",),
    ("tightship/kube/leases.py", "PUT", ""): (
        "test_a_lease_that_somebody_else_has_replaced_is_a_conflict",
        "test_a_lease_that_was_deleted_is_not_made_again_by_a_replacement",
    ),
    ("tightship/kube/reflector.py", "GET", ""): (
        "test_every_kind_that_the_controllers_read_is_served_and_readable",
        "test_the_controllers_read_a_list_of_many_pages_whole",
        "test_a_token_that_is_too_old_is_gone",
    ),
    ("tightship/kube/reflector.py", "WATCH", ""): (
        "test_every_kind_that_the_controllers_read_is_served_and_readable",
        "test_a_watch_tells_what_happens_from_a_version_on",
        "test_a_watch_ends_in_time_with_a_bookmark_if_it_may",
        "test_a_watch_from_a_version_that_is_forgotten_is_told_so_in_its_stream",
        "test_a_pod_that_finishes_is_told_as_deleted_to_those_who_look_at_unfinished_ones",
        "test_one_config_map_is_listed_and_watched_by_its_name",
    ),
    ("tightship/process/events.py", "POST", ""): (
        "test_an_event_is_written_in_the_new_form_and_read_in_both",
        "test_an_event_of_a_name_that_is_taken_is_a_conflict",
        "test_a_text_of_an_event_has_a_longest_length",
        "test_an_event_about_what_has_no_namespace_is_in_one_of_two_and_any_other_wherever_it_likes",
        "test_the_longest_words_and_oddest_names_of_the_recorder_are_accepted",
    ),
    ("tightship/process/settings/live.py", "GET", ""): ("test_one_config_map_is_listed_and_watched_by_its_name",),
    ("tightship/process/access.py", "POST", ""): ("test_only_who_may_get_metrics_gets_them",),
    ("hpa_scaler/process/loop.py", "GET", ""): ("test_pages_are_of_one_version_whatever_happens_in_between",),
    ("hpa_scaler/write/applying.py", "GET", ""): (
        "test_a_json_patch_that_does_not_apply_is_invalid_and_changes_nothing",
    ),
    ("hpa_scaler/write/applying.py", "PATCH", "CONTENT_TYPE"): (
        "test_a_json_patch_that_tests_uid_and_bounds_is_carried_out",
        "test_no_json_patch_is_lost_to_status_updates_however_many_there_are",
        "test_a_json_patch_that_does_not_apply_is_invalid_and_changes_nothing",
        "test_a_json_patch_in_a_dry_run_says_the_same_and_changes_nothing",
        "test_bounds_the_wrong_way_round_are_invalid",
    ),
    ("hpa_scaler/process/fleet.py", "GET", ""): ("test_the_target_of_an_hpa_that_is_not_there_is_not_found",),
}


def sites(source: str, module: str) -> Iterator[Site]:
    """Yield where a module asks the API server for something."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKS):
            continue
        own = node.func.attr == "_send" and len(node.args) > 1
        if not own and not ast.unparse(node.func.value).endswith("connection"):
            continue
        if node.func.attr == "stream":
            yield module, "WATCH", ""
        elif isinstance(node.args[0], ast.Constant):
            kinds = [ast.unparse(each.value) for each in node.keywords if each.arg == "content_type"]
            yield module, str(node.args[0].value), "".join(kinds)
        elif module == "tightship/kube/leases.py":
            # A Lease is written by one of two verbs, which are chosen beside the call.
            words = [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)]
            yield from ((module, verb, "") for verb in ("POST", "PUT") if verb in words)
        else:
            raise AssertionError(f"{module}: {ast.unparse(node)} does not say with which verb it asks")


def found() -> set[Site]:
    places: set[Site] = set()
    for folder in SOURCES:
        root = ROOT / "packages" / folder
        top = root.parent if folder.endswith("tightship") else root
        for path in root.rglob("*.py"):
            module = path.relative_to(top).as_posix()
            if module != TRANSPORT:
                places |= set(sites(path.read_text(), module))
    return places


ELSEWHERE = ("test_feature_gates.py", "test_access.py")
"""Contracts that the embedded cluster doesn't serve: those of feature gates, and reviews of tokens and rights."""


def suite() -> set[str]:
    return {
        node.name
        for path in (*Path(__file__).parent.glob("test_*.py"), *(ROOT / "e2e" / "tests" / each for each in ELSEWHERE))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_place_that_asks_the_api_server_has_its_contract() -> None:
    assert found() == set(CONTRACTS)


@pytest.mark.parametrize("site", CONTRACTS, ids=" ".join)
def test_the_contracts_of_a_place_are_there(site: Site) -> None:
    assert set(CONTRACTS[site]) <= suite()


def test_a_place_that_is_new_would_be_seen() -> None:
    text = "self._connection.request('PUT', path, content_type=KIND)\nsession.request('GET')"
    assert list(sites(text, "new.py")) == [("new.py", "PUT", "KIND")]
