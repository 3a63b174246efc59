//! Tests of narrow screens: what does not fit in a line follows in another one, and nothing covers anything else.

use super::*;
use crate::prompt_commands;

#[test]
fn help_on_a_narrow_screen_shows_each_command_with_its_description() {
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(4));
    console.press_keys(&[KeyPress::Char('?')]);
    for (width, height) in [(60, 12), (80, 24), (120, 35)] {
        let mut shown = String::new();
        console.press_keys(&[KeyPress::Char('g')]);
        for _ in 0..150 {
            shown.extend(console.draw(width, height).into_iter().chain(["\n".to_owned()]));
            console.press_keys(&[KeyPress::Down]);
        }
        for (word, _, description) in prompt_commands::listed_commands() {
            let both = [format!(":{word}"), description.to_owned()];
            assert!(both.iter().all(|part| shown.contains(part)), "{word} at {width}: {shown}");
        }
        assert!(shown.contains("GPU STATES") && shown.contains("12:03:41Z is UTC"), "{shown}");
    }
    console.draw(80, 24);
    console.press_keys(&[KeyPress::Char('G')]);
    console.expect_golden_at("help-end", 80, 24);
}

#[test]
fn topology_on_a_narrow_screen_keeps_load_and_leaf() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.state.screen = crate::screen::TopologyScreen("gpu003".into()).into();
    console.deliver_answer(Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))));
    for width in [60, 80, 103, 104] {
        let screen = console.draw(width, 24).join("\n");
        for part in ["40/38  %", "DOWN ", "leaf-07 r5", "leaf, rail"] {
            let shown = screen.contains(part) || width == 60 && part.starts_with("leaf");
            assert!(shown, "{part} at {width}:\n{screen}");
        }
    }
    console.expect_golden_at("topology", 60, 14);
}

#[test]
fn sentences_of_findings_are_complete_while_there_is_space() {
    let long = "gpu006 is data-starved: all 8 allocated GPUs wait for input (IO pressure 34.0 %, \
                limit 8.0 %), and the page cache is read from a file system that does not answer";
    let mut findings = vec![sample_answers::port_down_finding(), sample_answers::starved_finding()];
    findings[1].summary = long.into();
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char('2')]);
    let list = FindingList { at: AT, findings, ..FindingList::default() };
    console.deliver_answer(Answer::Findings(Arc::new(list)));
    for (width, height) in [(60, 18), (80, 24), (120, 35), (159, 48)] {
        let screen = console.draw(width, height);
        let words: Vec<&str> = screen.iter().flat_map(|line| line.split_whitespace()).collect();
        assert!(words.join(" ").contains(long), "{width}: {screen:#?}");
    }
}

#[test]
fn smallest_overview_keeps_the_sentence_of_the_finding_under_the_cursor() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    for finding in [sample_answers::port_down_finding(), sample_answers::starved_finding()] {
        let screen = console.draw(60, 18);
        let words: Vec<&str> = screen.iter().flat_map(|line| line.split_whitespace()).collect();
        assert!(words.join(" ").contains(&finding.summary), "{screen:#?}");
        console.press_keys(&[KeyPress::Down]);
    }
}

#[test]
fn overview_gives_a_long_sentence_its_own_line() {
    let mut overview = sample_answers::two_faults_overview(32);
    overview.findings[1].summary =
        "gpu006 is data-starved: all 8 allocated GPUs wait for input (IO pressure 34.0 %)".into();
    let mut console = GoldenConsole::with_overview(overview);
    let screen = console.draw(120, 35).join("\n");
    assert!(screen.contains("wait for input (IO pressure 34.0 %)\n"), "{screen}");
}

#[test]
fn signals_have_the_heading_of_their_time_unless_it_is_now() {
    let id = "port_down/gpu003/mlx5_1/1";
    for (later, heading) in [(0, "  now  "), (60, " 12:03:41Z    baseline")] {
        let mut overview = sample_answers::two_faults_overview(32);
        overview.at = UnixMs(AT.0 + later * 1_000);
        let mut console = GoldenConsole::with_overview(overview);
        console.state.screen = ExplanationScreen(id.into()).into();
        let explained = sample_answers::explanation_of(sample_answers::port_down_finding());
        let question = Question::Finding(id.into());
        console.answer_question(question, Answer::Finding(Arc::new(explained)));
        let screen = console.draw(80, 24).join("\n");
        assert!(screen.contains(heading), "{screen}");
    }
}

#[test]
fn job_lists_only_the_gpus_that_differ() {
    let mut detail = sample_answers::job_detail();
    for strip in &mut detail.past.strips {
        strip.odd_ratio = 0.0;
    }
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.state.screen = crate::screen::JobScreen("8812".into()).into();
    console.deliver_answer(Answer::Job(Arc::new(detail)));
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("no GPU differs") && !screen.contains("gpu003 GPU"), "{screen}");
}

#[test]
fn every_screen_names_clusters_that_do_not_answer() {
    let mut overview = sample_answers::two_faults_overview(32);
    overview.silent_clusters = vec!["hall-2".into()];
    let mut console = GoldenConsole::with_overview(overview.clone());
    for key in ['1', '2', '5'] {
        console.press_keys(&[KeyPress::Char(key)]);
        for (width, height) in [(60, 18), (80, 24), (120, 35)] {
            let header = &console.draw(width, height)[0];
            assert!(header.contains("prod-a   hall-2 silent"), "{header}");
        }
    }
    overview.silent_clusters.push("hall-3".into());
    let header = &GoldenConsole::with_overview(overview).draw(80, 24)[0];
    assert!(header.contains("2 clusters silent"), "{header}");
}

#[test]
fn overview_counts_the_worse_findings_above_the_cursor() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char('G')]);
    let screen = console.draw(80, 14).join("\n");
    assert!(screen.contains("1 worse finding above; press 2 to list"), "{screen}");
}

#[test]
fn sentence_that_is_cut_ends_with_an_ellipsis() {
    let mut overview = sample_answers::two_faults_overview(32);
    overview.findings[0].summary = "word ".repeat(40);
    let mut console = GoldenConsole::with_overview(overview);
    let screen = console.draw(60, 15);
    let more = screen.iter().position(|line| line.contains("press 2 to list")).unwrap();
    assert!(screen[more - 1].trim_end().ends_with("word…"), "{screen:#?}");
}

#[test]
fn list_on_a_narrow_screen_keeps_the_column_that_it_is_sorted_by() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char('6')]);
    console.deliver_answer(Answer::Table(Arc::new(sample_answers::gpu_table())));
    let heading = console.draw(60, 18)[2].clone();
    assert!(heading.contains("GPUs lost▼") && heading.contains("state"), "{heading}");
    assert!(console.draw(80, 24)[2].contains("util %"));
}

#[test]
fn overview_says_that_a_finding_is_silenced() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    assert!(console.screen_questions().contains(&Question::Alerts));
    console
        .answer_question(Question::Alerts, Answer::Alerts(Arc::new(sample_answers::alert_list())));
    for (width, height) in [(80, 24), (120, 35)] {
        let screen = console.draw(width, height).join(" ");
        assert!(screen.contains("silenced"), "{screen}");
    }
}

#[test]
fn probe_pair_on_a_narrow_screen_breaks_between_its_parts() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.state.screen = crate::screen::ProbeScreen.into();
    console.deliver_answer(Answer::Probe(Arc::new(sample_answers::probe_matrix())));
    let screen = console.draw(60, 24);
    assert!(screen.iter().any(|line| line.contains("mlx5_0/1 – ")), "{screen:#?}");
    assert!(screen.iter().any(|line| line.contains("   by nccl, 4m ago")), "{screen:#?}");
    assert!(screen.iter().any(|line| line.ends_with("not measured")), "{screen:#?}");
}

#[test]
fn network_without_leaves_names_the_next_step_whole() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char('4')]);
    let mut fabric = sample_answers::leaf_rail_fabric();
    fabric.leaves.fill("".into());
    for active in [&fabric.cells.active, &fabric.cells.ports].map(Clone::clone) {
        fabric.cells.active = active;
        console.deliver_answer(Answer::Fabric(Arc::new(fabric.clone())));
        let title = console.draw(80, 24)[1].clone();
        assert!(title.ends_with("no leaf known: :coverage"), "{title}");
    }
}
