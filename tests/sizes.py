"""The three sizes of test: quick (under two minutes), test (everything once), proof (the counts of a release).

`make quick`, `make test` and `make proof [PART=core]` call this. The trials run apart from the rest, without coverage,
which would slow them down five times; tests with real processes run one at a time where they are about moments. Each
size ends with what was skipped and why, and with the servers that ran.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from functools import cache

from tests.support.canary import NOTES
from tests.support.servers import REPORT

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
TWO_AT_A_TIME = ["-n", "2", "--dist", "worksteal"]
THREE_FILES_AT_A_TIME = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
COVERAGE = ["--cov=primacy.election", "--cov-branch", "--cov-report=term:skip-covered", "--cov-fail-under=95"]
TRIALS = (
    "tests/simulation/test_sim.py",
    "tests/simulation/test_mutants.py",
    "tests/simulation/test_exhaustive.py",
    "tests/simulation/test_lease_trials.py",
    "tests/simulation/test_cache_trials.py",
    "tests/simulation/test_cache_small.py",
)
PROCESSES = (
    "tests/processes/test_guard.py",
    "tests/processes/test_guard_deadlines.py",
    "tests/processes/test_guard_mutants.py",
    "tests/processes/test_guard_trace.py",
    "tests/processes/test_guard_freeze.py",
    "tests/processes/test_run.py",
    "tests/processes/test_cluster.py",
    "tests/processes/test_manager_storm.py",
    "tests/processes/test_canary.py",
    "tests/processes/test_faults_process.py",
    "tests/processes/test_node.py",
    "tests/processes/test_failsafe.py",
    "tests/processes/test_bench_containment.py",
    "tests/processes/test_bench_failover.py",
    "tests/processes/test_bench_lease.py",
    "tests/processes/test_faults_calm.py",
    "tests/processes/test_faults_mutants.py",
    "tests/browser/test_dashboard_load.py",
    "tests/browser/test_dashboard_lab.py",
    "tests/processes/test_store_race.py",
    "tests/processes/test_store_faults.py",
    "tests/processes/test_library.py",
    "tests/processes/test_library_calls.py",
    "tests/processes/test_library_recipes.py",
    "tests/processes/test_library_tokens.py",
    "tests/processes/test_library_process.py",
    "tests/processes/test_slots_bench.py",
    "tests/processes/test_cache_client.py",
    "tests/processes/test_cache_peer.py",
    "tests/processes/test_cache_fuzz.py",
    "tests/processes/test_cache_mixed_process.py",
    "tests/processes/test_cache_decorator.py",
    "tests/processes/test_cache_dogpile.py",
)
BESIDE = (
    "tests/processes/test_faults_lease.py",
    "tests/processes/test_faults_links.py",
    "tests/processes/test_manual.py",
    "tests/processes/test_slots_cluster.py",
    "tests/processes/test_manager_process.py",
    "tests/processes/test_manager_real_leader.py",
    "tests/processes/test_run_lease.py",
    "tests/processes/test_store_forgets.py",
    "tests/contracts/test_store_mutants.py",
    "tests/contracts/test_store_contract.py",
    "tests/processes/test_demo.py",
    "tests/docs/test_examples.py",
    "tests/browser/test_dashboard_browser.py",
    "tests/browser/test_dashboard_access.py",
    "tests/processes/test_view.py",
    "tests/processes/test_faults_ballot.py",
    "tests/processes/test_run_faults.py",
    "tests/processes/test_faults_chaos.py",
    "tests/processes/test_demo_leaves.py",
    "tests/processes/test_lab.py",
    "tests/processes/test_slots_process.py",
    "tests/processes/test_fence_process.py",
    "tests/processes/test_store_etcd.py",
    "tests/processes/test_store_tls.py",
    "tests/processes/test_store_unusable.py",
    "tests/processes/test_cli_lease.py",
    "tests/processes/test_health.py",
    "tests/processes/test_dashboard_command.py",
    "tests/processes/test_slots_fuzz.py",
    "tests/processes/test_cli_agent.py",
    "tests/processes/test_store_upgrade.py",
    "tests/processes/test_store_emptied.py",
    "tests/processes/test_store_steps.py",
    "tests/processes/test_notify.py",
    "tests/processes/test_store_limits.py",
    "tests/processes/test_store_ready.py",
    "tests/processes/test_store_releaser.py",
    "tests/processes/test_guard_command.py",
    "tests/processes/test_hooks.py",
    "tests/processes/test_from_ghoti.py",
    "tests/processes/test_dashboard_server.py",
    "tests/processes/test_child.py",
    "tests/processes/test_chain.py",
    "tests/contracts/test_fence.py",
    "tests/processes/test_cli_cache.py",
    "tests/docs/test_cache_examples.py",
    "tests/contracts/test_cache_lmdb.py",
    "tests/contracts/test_cache_source.py",
    "tests/processes/test_cache_source_process.py",
    "tests/contracts/test_cache_source_http.py",
    "tests/processes/test_cache_peer_source.py",
    "tests/docs/test_docs_cache.py",
    "tests/processes/test_store_refusals.py",
    "tests/contracts/test_store_address.py",
    "tests/processes/test_guard_lease.py",
    "tests/processes/test_run_calls.py",
    "tests/docs/test_build.py",
    "tests/docs/test_contributing.py",
    "tests/docs/test_behaviour.py",
    "tests/processes/test_faults_members.py",
)
"""Real processes and servers, too, which wait most of the time, and nothing in them depends on how soon, but for bounds
of several seconds: three files at a time. The longest come first, so that no worker is left with one in the end; the
last one uses all processors by itself."""
PATIENT = (
    "tests/processes/test_manager_echoes.py",
    "tests/processes/test_manager_scenarios.py",
    "tests/processes/test_manager_duplicates.py",
)
"""Real sockets in one process, with pauses that are real, too: too long for `quick`."""
RECORDED = (
    "tests/simulation/test_replay.py",
    "tests/simulation/test_mutants.py",
    "tests/simulation/test_mutants_lease.py",
    "tests/rules/test_cache_document_mutants.py",
)
"""Trials that were recorded, and planted defects: a quarter of what `quick` would take, and no news between two runs of
`test`."""
LATER = {
    "tests/processes/test_bench_cache.py": (
        "test_callers_cold_keys_and_a_crowd_are_measured",
        "test_hits_are_compared_with_c_and_with_zmq_asyncio",
    ),
    "tests/rules/test_cache_own.py": ("test_a_hundred_thousand_keys",),
    "tests/processes/test_cache_peer_inside.py": ("test_a_peer_that_stops_in_order_leaves_its_retrieval_to_another",),
    "tests/simulation/test_cache_small.py": (
        "test_a_planted_defect_is_found_as_a_short_story",
        "test_nor_does_one_if_restarts_forget_everything",
    ),
    "tests/contracts/test_cache_sockets.py": (
        "test_a_peer_that_is_read_half_may_leave_the_list",
        "test_answers_that_came_before_a_peer_died_are_read",
    ),
    "tests/simulation/test_cache_trials.py": (
        "test_a_planted_defect_is_caught_at_random",
        "test_nothing_is_violated_with_hundreds_of_keys",
    ),
    "tests/simulation/test_batch.py": (
        "test_E2_a_batch_names_the_seed_of_a_lost_trial_and_goes_on",
        "test_a_worker_that_is_slow_to_start_loses_no_trial",
    ),
    "tests/docs/test_docs_library.py": (
        "test_programs_in_the_documents",
        "test_the_types_are_those_that_a_user_sees",
    ),
    "tests/simulation/test_exhaustive.py": (
        "test_every_event_can_be_told",
        "test_everything_with_one_disturbance_was_walked",
        "test_everything_with_one_disturbance_was_walked_and_leads_to_a_second_term",
        "test_machines_that_are_merged_do_the_same_and_stay_merged",
        "test_machines_that_must_not_be_merged_are_noticed",
        "test_the_command_fails_where_a_walk_is_not_complete",
        "test_two_clocks_are_read_in_whole_milliseconds",
        "test_what_is_left_out_of_a_state_decides_nothing",
        "test_without_the_promise_the_start_delay_still_keeps_works_apart",
    ),
    "tests/simulation/test_lease_trials.py": (
        "test_L4_a_release_may_be_forgotten_as_long_as_nobody_took_upon_it",
        "test_L4_watched_is_safe_on_a_store_that_never_tells_who_it_is",
        "test_T1_tokens_of_all_only_grow_if_no_commit_is_lost_or_the_wall_clocks_agree",
        "test_T1_with_history_lost_and_wild_wall_clocks_tokens_go_back",
        "test_the_simulator_strikes_by_ways_outside_of_the_promise_only_if_asked_and_finds_what_they_break",
    ),
    "tests/processes/test_manager.py": (
        "test_a_join_storm_of_real_nodes_is_calmed",
        "test_twenty_nodes_that_join_at_once_tell_each_other_once",
    ),
    "tests/processes/test_manager_pace.py": (
        "test_late_answers_of_several_nodes_are_measured_beyond_the_limit_and_said",
    ),
    "tests/simulation/test_operator.py": ("test_of_two_first_starts_in_use_one_is_given_up",),
    "tests/simulation/test_own.py": ("test_the_simulator_finds_the_example_to_keep_what_it_promises",),
    "tests/simulation/test_raft_again.py": ("test_the_short_way_leads_where_a_step_leads",),
    "tests/rules/test_rules_echoes.py": ("test_E1_taken_out_a_repeated_datagram_is_refused_again",),
    "tests/rules/test_rules_raft_first.py": ("test_M3_taken_out_a_recorded_trial_breaks_again",),
    "tests/contracts/test_settings.py": ("test_a_right_file_with_junk_in_any_place_never_raises_anything_else",),
    "tests/simulation/test_sim.py": (
        "test_one_seed_is_one_history_under_any_hash_seed",
        "test_rare_situations_are_not_left_to_chance",
    ),
    "tests/processes/test_slots_client.py": (
        "test_a_frozen_node_is_left_by_clients_who_never_wait_long",
        "test_a_watch_leaves_a_leader_that_says_nothing_more",
        "test_nobody_leads_is_said_in_time",
    ),
}
"""Single tests that take seconds each, by walks, batches or pauses; `quick` has the rest of their files."""
PARTS = {
    "core": "tests.support.proof_core",
    "run": "tests.support.proof_run",
    "dashboard": "tests.support.proof_dashboard",
    "store": "tests.support.proof_store",
    "manager": "tests.support.proof_manager",
    "slots": "tests.support.proof_slots",
    "cache": "tests.support.proof_cache",
}
"""What `make proof PART=...` can be asked for, and the module that does it."""


def _pytest(size: str, *arguments: str) -> int:
    environment = {**os.environ, "PRIMACY_SIZE": size, REPORT: servers_file()}
    return subprocess.run([*PYTEST, *arguments], env=environment, check=False).returncode


@cache
def servers_file() -> str:
    """Where the tests note the servers that they started."""
    handle, path = tempfile.mkstemp(prefix="primacy-servers-")
    os.close(handle)
    atexit.register(os.unlink, path)
    return path


def servers_that_ran() -> str:
    with open(servers_file(), encoding="utf-8") as file:
        found = sorted({line.strip() for line in file if line.strip()})
    return ", ".join(["SQLite " + sqlite3.sqlite_version, *found]) if found else "none"


def _without(*names: str) -> list[str]:
    return [f"--ignore={name}" for name in names]


def quick_arguments() -> list[str]:
    later = [f"--deselect={file}::{name}" for file, names in LATER.items() for name in names]
    return [*TWO_AT_A_TIME, *_without(*PROCESSES, *BESIDE, *PATIENT, *RECORDED), *later]


def quick() -> int:
    """All but real processes, long pauses and what is recorded, and a twentieth of the trials."""
    return _pytest("quick", *quick_arguments())


def test() -> int:
    """The rules with coverage, then the trials, then the processes, then some of these as an ordinary user."""
    phases = {
        "rules": lambda: _pytest("test", *TWO_AT_A_TIME, *COVERAGE, *_without(*TRIALS, *PROCESSES, *BESIDE)),
        "trials": lambda: _pytest("test", *TWO_AT_A_TIME, *TRIALS),
        "processes": lambda: _pytest("test", *PROCESSES),
        "processes, three at a time": lambda: _pytest("test", *THREE_FILES_AT_A_TIME, *BESIDE),
        "ordinary user": lambda: (
            subprocess.run([sys.executable, "-m", "tests.support.ordinary_user"], check=False).returncode
        ),
    }
    for name, phase in phases.items():
        began = time.monotonic()
        code = phase()
        print(
            f"phase {name}: {'green' if code == 0 else f'failed with {code}'} after {time.monotonic() - began:.0f} s\n"
        )
        if code:
            return code
    return 0


def proof(part: str) -> int:
    if part != "all" and part not in PARTS:
        print(f"make proof: no part named {part!r}; the parts are: all, {', '.join(PARTS)}", file=sys.stderr)
        return 2
    code = test()
    for name, module in PARTS.items():
        if not code and part in ("all", name):
            code = subprocess.run([sys.executable, "-m", module], check=False).returncode
    return code


def say_notes(path: str) -> None:
    """What was void or skipped in any phase, and why."""
    with open(path) as file:
        lines = file.read().splitlines()
    for kind in ("void", "skipped"):
        found = [line for line in lines if line.startswith(kind)]
        print(f"{kind}: {len(found) or 'none'}")
        for line in found:
            print(f"  {line}")


def main() -> int:
    began = time.monotonic()
    size = sys.argv[1] if len(sys.argv) > 1 else "test"
    handle, notes = tempfile.mkstemp(prefix="notes-")
    os.close(handle)
    os.chmod(notes, 0o666)  # the ordinary user's run writes here, too
    os.environ[NOTES] = notes
    code = proof(*(sys.argv[2:] or ["all"])) if size == "proof" else {"quick": quick, "test": test}[size]()
    say_notes(notes)
    os.unlink(notes)
    print(f"servers that ran: {servers_that_ran()}")
    print(f"make {size}: {'green' if code == 0 else f'failed with {code}'} after {time.monotonic() - began:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
