//! The faults that gaunt must survive, and the tests that show it: a test that was renamed or removed fails here.

use std::{collections::BTreeSet, fs, path::Path};

/// What a seed of the simulation has, and with it every test run.
const SEEDS: [&str; 2] = ["no_seed_violates_an_invariant", "no_other_seed_violates_an_invariant"];

/// A fault, the tests that show what must hold, and what no test that runs every time shows.
struct KnownFault {
    fault: &'static str,
    tests: &'static [&'static str],
    is_in_seeds: bool,
    lacks: &'static str,
}

const fn tested(
    fault: &'static str,
    tests: &'static [&'static str],
    lacks: &'static str,
) -> KnownFault {
    KnownFault { fault, tests, is_in_seeds: false, lacks }
}

const fn in_seeds(
    fault: &'static str,
    tests: &'static [&'static str],
    lacks: &'static str,
) -> KnownFault {
    KnownFault { fault, tests, is_in_seeds: true, lacks }
}

const KNOWN_FAULTS: [KnownFault; 22] = [
    tested(
        "a driver call never returns",
        &["hang_at_any_call_is_named_while_reports_keep_coming"],
        "the latency of the page meanwhile",
    ),
    tested(
        "a worker that cannot be killed",
        &["stopped_worker_is_flagged_and_replaced", "node_ends_while_its_worker_is_stopped"],
        "a worker in an uninterruptible system call",
    ),
    tested(
        "a GPU is lost, and is back",
        &[
            "gpu_lost_at_any_call_costs_that_gpu_alone",
            "lost_gpu_stays_on_the_page_as_lost",
            "lost_gpu_that_is_back_is_read_again",
        ],
        "",
    ),
    tested("another driver is loaded", &["reloaded_driver_or_changed_gpu_count_is_read_again"], ""),
    tested(
        "a storm of XIDs",
        &["xid_storm_is_counted_whole_while_values_stay_live", "kernel_log_storm_is_counted_whole"],
        "its cost in CPU time",
    ),
    tested(
        "files of sysfs vanish, wrap, hang or are garbage",
        &[
            "blocked_file_costs_its_card_only",
            "collector_whose_files_are_garbage_does_not_succeed",
            "rate_handles_growth_resets_and_wraps",
        ],
        "a counter that vanishes while its port stays",
    ),
    in_seeds(
        "targets that are slow, refuse or reset",
        &["good_targets_are_not_delayed_by_a_quarter_that_misbehaves"],
        "",
    ),
    in_seeds(
        "bombs of compression, endless pages and lines",
        &[
            "page_over_the_compression_ratio_is_refused",
            "body_that_claims_to_be_large_is_refused_before_memory_is_taken",
            "good_targets_are_not_delayed_by_a_quarter_that_misbehaves",
        ],
        "",
    ),
    tested(
        "more and more series from one node",
        &[
            "good_targets_are_not_delayed_by_a_quarter_that_misbehaves",
            "devices_beyond_the_limit_of_a_node_are_rejected_counted_and_reported",
        ],
        "",
    ),
    tested(
        "series twice or against each other, and types that flip",
        &["malformed_cases_have_expected_results", "type_of_a_family_may_flip_between_two_pages"],
        "",
    ),
    in_seeds(
        "clocks that are wrong, step or differ",
        &["wrong_clocks_other_versions_and_expiring_certificates_are_named"],
        "a clock that stands still; a step while an aggregator runs",
    ),
    in_seeds(
        "an aggregator is killed, its disk is full, its files are used up",
        &[
            "killed_aggregator_continues_where_it_ended",
            "full_disk_stops_only_the_recording",
            "aggregator_out_of_open_files_reports_it_and_still_answers",
        ],
        "",
    ),
    in_seeds(
        "a store that refuses, hangs or takes a part",
        &[
            "backlog_of_an_hour_arrives_in_order_after_a_restart",
            "oldest_requests_are_given_up_and_counted_when_it_is_full",
        ],
        "",
    ),
    in_seeds(
        "lists of targets that are empty, cut off or garbage",
        &[
            "list_that_loses_many_targets_at_once_is_rejected",
            "failed_source_keeps_its_last_targets",
        ],
        "",
    ),
    tested("a rack is cut off", &["rack_that_is_cut_off_is_one_finding"], ""),
    tested(
        "escape sequences in every label",
        &[
            "escape_sequences_in_answers_never_reach_the_terminal",
            "corpora_and_changes_of_them_break_no_fuzz_target",
        ],
        "",
    ),
    tested(
        "a storm of terminal sizes",
        &["screen_after_changes_equals_a_full_redraw", "screens_never_panic_at_any_size"],
        "",
    ),
    tested(
        "a console that ends at any moment",
        &[
            "terminal_is_restored_on_every_exit",
            "terminal_is_restored_after_a_signal_at_any_moment_of_the_start",
            "console_ends_when_its_terminal_hangs_up",
            "console_ends_while_its_terminal_reads_nothing",
        ],
        "",
    ),
    tested(
        "terminals without colour or UTF-8",
        &["output_has_no_colour_with_no_color_and_only_ascii_without_utf_8"],
        "",
    ),
    tested(
        "hostile questions",
        &[
            "long_questions_deliveries_and_short_questions_are_all_served",
            "corpora_and_changes_of_them_break_no_fuzz_target",
        ],
        "a mix of them against the program",
    ),
    tested(
        "a month of churn",
        &["memory_is_flat_under_churn_for_30_days"],
        "all of it: the test takes a minute, and is run by hand",
    ),
    in_seeds(
        "the whole fleet reboots",
        &[
            "fleet_that_was_down_is_scraped_again_once_it_is_up",
            "fleet_that_was_away_is_read_again_within_15_seconds",
        ],
        "12,500 targets: `gaunt-bench fleet`",
    ),
];

/// Adds the names of the functions in the Rust files of a folder and of those in it.
fn collect_functions(folder: &Path, functions: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_functions(&path, functions);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let named = text.lines().filter_map(|line| line.split_once("fn ")?.1.split_once('('));
            functions.extend(named.map(|(name, _)| name.to_owned()));
        }
    }
}

#[test]
fn known_faults_have_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut functions = BTreeSet::new();
    for folder in ["src", "exporters", "tests"] {
        collect_functions(&root.join(folder), &mut functions);
    }
    for (number, known) in (1..).zip(&KNOWN_FAULTS) {
        let seeds = known.is_in_seeds.then_some(SEEDS).into_iter().flatten();
        for test in known.tests.iter().copied().chain(seeds) {
            assert!(functions.contains(test), "{number}, {}: no test {test}", known.fault);
        }
        if !known.lacks.is_empty() {
            println!("{number}, {}: no test shows {}", known.fault, known.lacks);
        }
    }
}
