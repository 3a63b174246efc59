//! Golden screens of lists, jobs, the network, devices and the screens of a node; each theme and colour depth once.

use std::time::Duration;

use super::*;
use crate::{
    screen::{DeviceScreen, JobScreen, NetworkScreen},
    theme::StyleRole,
};
use gaunt_api::{AnswerCells, ProbeMatrix};

fn console_showing(screen: impl Into<Screen>) -> GoldenConsole {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.state.screen = screen.into();
    console
}

/// Answers the question of a list with the requested columns of a sample table.
fn answer_list(console: &mut GoldenConsole, table: gaunt_api::AnswerTable) {
    let question = console.state.list_state(table.subject).rows_question();
    console.answer_question(question, Answer::Table(Arc::new(table)));
}

#[test]
fn gpus_as_rows() {
    let mut console = console_showing(ListScreen(Subject::Gpus));
    answer_list(&mut console, sample_answers::gpu_table());
    console.press_keys(&[KeyPress::Down, KeyPress::Down]);
    console.expect_golden("gpus");
}

#[test]
fn jobs_as_rows_and_users() {
    let mut console = console_showing(ListScreen(Subject::Jobs));
    answer_list(&mut console, sample_answers::job_table());
    console.expect_golden("jobs");
    console.press_keys(&[KeyPress::Char('8')]);
    console.deliver_answer(Answer::Table(Arc::new(sample_answers::job_table())));
    console.expect_golden("users");
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(console.state.screen, ListScreen(Subject::Jobs).into());
    assert_eq!(console.state.list_state(Subject::Jobs).rows, "user=alice");
}

#[test]
fn processes_of_a_node_are_rows() {
    let mut console = console_showing(NodeScreen("gpu003".into()));
    console.deliver_answer(Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))));
    let effects = console.press_keys(&[KeyPress::Char('p')]);
    let Some(ConsoleEffect::Ask(questions)) = effects.last() else { panic!("{effects:?}") };
    let Some(Question::Table(filter)) = questions.last() else { panic!("{questions:?}") };
    assert!(
        filter.source_text().starts_with("node=gpu003 sort memory desc limit"),
        "{}",
        filter.source_text()
    );
    answer_list(&mut console, sample_answers::process_table());
    console.press_keys(&[KeyPress::Down]);
    console.expect_golden("processes");
    console.press_keys(&[KeyPress::Enter]);
    let gpu = DeviceScreen::of_gpu("gpu003".into(), "5").into();
    assert_eq!(console.state.screen, gpu);
    console.press_keys(&[KeyPress::Escape, KeyPress::Char('b')]);
    assert_eq!(console.state.screen, JobScreen("8812".into()).into());
}

#[test]
fn ports_targets_and_closed_findings_as_rows() {
    for (name, table) in [
        ("ports", sample_answers::port_table()),
        ("targets", sample_answers::target_table()),
        ("closed", sample_answers::closed_table()),
    ] {
        let mut console = console_showing(ListScreen(table.subject));
        answer_list(&mut console, table);
        console.expect_golden(name);
    }
}

#[test]
fn nodes_as_rows() {
    let names: Vec<String> = (1..=40).map(|n| format!("gpu{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = sample_answers::build_table(
        Subject::Nodes,
        vec![
            ("node", sample_answers::text_cells(&names)),
            ("state", sample_answers::text_cells(&["live"; 40])),
            ("gpu_states", sample_answers::text_cells(&["wwwwwwww"; 40])),
            ("lost", sample_answers::number_cells(&[Some(8.0); 40])),
            ("gpu_utilization", sample_answers::number_cells(&[None; 40])),
            ("recent_power", sample_answers::text_cells(&["-----999999983333333"; 40])),
        ],
    );
    table.total = 12_500;
    let mut console = console_showing(ListScreen(Subject::Nodes));
    answer_list(&mut console, table);
    console.press_keys(&[KeyPress::PageDown, KeyPress::Char('G')]);
    console.expect_golden("nodes");
}

#[test]
fn graph_of_a_metric_with_its_peers_and_spans() {
    let mut console = console_showing(DeviceScreen::of_gpu("gpu003".into(), "5"));
    console.deliver_answer(Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))));
    console.draw(120, 35);
    console.press_keys(&[KeyPress::Right, KeyPress::Left, KeyPress::Enter]);
    assert!(matches!(console.state.screen, Screen::Graph(_)), "{:?}", console.state.screen);
    console.deliver_answer(Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))));
    let asked = console.screen_questions();
    let histories: Vec<&Question> =
        asked.iter().filter(|question| matches!(question, Question::History(_))).collect();
    let [own, low, high] = histories[..] else { panic!("{asked:?}") };
    for (question, value) in [(own, 0.4), (low, 0.8), (high, 0.95)] {
        let points =
            (0_u8..90).map(|at| Some(if at < 60 { 0.9_f32.min(value + 0.5) } else { value }));
        let history = sample_answers::device_history(&points.collect::<Vec<_>>());
        console.answer_question(question.clone(), Answer::History(Arc::new(history)));
    }
    assert_eq!(console.screen_questions().len(), 2, "histories are not requested at every tick");
    console.expect_golden("graph");
    let longest = console.draw(120, 35)[3].clone();
    assert!(longest.contains("last 15m, all that is in memory"), "{longest}");
    console.press_keys(&[KeyPress::Char('+')]);
    assert!(console.draw(120, 35)[3].contains("last 5m   + shorter"));
    console.press_keys(&[KeyPress::Char('-')]);
    assert!(console.draw(120, 35)[3].contains("all that is in memory"));
    check_longer_spans(&mut console);
    console.press_keys(&[KeyPress::Escape]);
    assert!(matches!(console.state.screen, Screen::Device(_)));
}

/// What is beyond the memory of the aggregator: a store has mean, minimum and maximum of each step, or nothing.
fn check_longer_spans(console: &mut GoldenConsole) {
    console.press_keys(&[KeyPress::Char('-')]);
    let asked = |console: &GoldenConsole| {
        let longer = |question: &Question| match question {
            Question::History(query) => query.span.is_some(),
            _ => false,
        };
        console.screen_questions().into_iter().find(longer)
    };
    assert!(console.draw(120, 35)[3].contains("all that is in memory: asking for more"));
    let question = asked(console).unwrap();
    console.answer_question(question, Answer::Refused(Refusal::NoToken));
    assert!(console.draw(120, 35)[3].contains("needs a store with level"));
    console.press_keys(&[KeyPress::Char('+')]);
    console.press_keys(&[KeyPress::Char('-'), KeyPress::Char('-')]);
    console.state.now = console.state.now + Duration::from_mins(2);
    let question = asked(console).unwrap();
    let mut history = sample_answers::device_history(&[Some(0.5); 60]);
    history.step_ms = 60_000;
    history.low = vec![Some(0.25); 60];
    history.high = vec![Some(0.75); 60];
    console.answer_question(question, Answer::History(Arc::new(history)));
    let lines = console.draw(120, 35);
    assert!(lines[3].contains("last 1h00   + shorter"), "{}", lines[3]);
    assert!(
        lines[2].contains("lowest 25.0 % and highest 75.0 % in the newest step"),
        "{}",
        lines[2]
    );
    assert!(lines.iter().any(|line| line.contains("1h00 ago")), "{lines:?}");
}

#[test]
fn empty_list_says_why() {
    let mut console = console_showing(ListScreen(Subject::Gpus));
    let mut table = sample_answers::build_table(Subject::Gpus, Vec::new());
    table.total = 256;
    answer_list(&mut console, table);
    console.expect_golden_at("no-rows", 80, 24);
}

#[test]
fn job_screen_shows_the_odd_gpu() {
    let mut console = console_showing(JobScreen("8812".into()));
    console.deliver_answer(Answer::Job(Arc::new(sample_answers::job_detail())));
    console.expect_golden("job");
    console.press_keys(&[KeyPress::Enter]);
    let screen = DeviceScreen::of_gpu("gpu003".into(), "5").into();
    assert_eq!(console.state.screen, screen);
}

#[test]
fn network_screen_by_each_measure() {
    let mut console = console_showing(NetworkScreen);
    console.deliver_answer(Answer::Fabric(Arc::new(sample_answers::leaf_rail_fabric())));
    console.press_keys(&[KeyPress::Down, KeyPress::Right]);
    let questions = console.screen_questions();
    let [_, _, cables, domains] = &questions[..] else { panic!("{questions:?}") };
    let answer = |table| Answer::Table(Arc::new(table));
    console.answer_question(cables.clone(), answer(sample_answers::cable_table()));
    console.answer_question(domains.clone(), answer(sample_answers::domain_table()));
    console.expect_golden("network");
    for name in ["pauses", "congestion", "errors", "flaps"] {
        console.press_keys(&[KeyPress::Char('m')]);
        console.expect_golden_at(&format!("network-{name}"), 80, 24);
    }
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(console.state.list_state(Subject::Ports).rows, "leaf=leaf-00 and rail=2");
}

#[test]
fn wide_network_screen_shows_the_probe_matrix_beside_the_map() {
    let mut console = console_showing(NetworkScreen);
    console.deliver_answer(Answer::Fabric(Arc::new(sample_answers::leaf_rail_fabric())));
    console.draw(200, 50);
    assert!(console.screen_questions().contains(&Question::Probe));
    console
        .answer_question(Question::Probe, Answer::Probe(Arc::new(sample_answers::probe_matrix())));
    console.expect_golden_at("network-probe", 200, 50);
    assert!(!console.draw(120, 35).join("\n").contains("PROBE"));
}

#[test]
fn network_is_filtered_and_marks_findings_in_their_cells() {
    let mut console = console_showing(NetworkScreen);
    let mut fabric = sample_answers::leaf_rail_fabric();
    fabric.cells.finding[14] = Some(gaunt_schema::FindingKind::LeafCongested);
    console.deliver_answer(Answer::Fabric(Arc::new(fabric)));
    let screen = console.draw(80, 24);
    assert!(screen[3].starts_with(" leaf-02") && screen[3].contains("✖x40"), "{screen:#?}");
    assert!(screen[4].starts_with(" leaf-03") && screen[4].contains("✖39"), "{screen:#?}");
    console.press_keys(&[KeyPress::Char('/')]);
    console.type_text("node~gpu00");
    let effects = console.press_keys(&[KeyPress::Enter]);
    let asked = format!("{effects:?}");
    assert!(asked.contains("Fabric") && asked.contains("node~gpu00"), "{asked}");
    assert!(console.draw(120, 24)[1].contains("match node~gpu00"), "{:?}", console.draw(120, 24));
    console.press_keys(&[KeyPress::Enter]);
    let rows = &console.state.list_state(Subject::Ports).rows;
    assert_eq!(rows, "(node~gpu00) and leaf=leaf-02 and rail=1");
}

#[test]
fn network_rates_fit_their_cells_and_only_blamed_ones_are_red() {
    let mut fabric = sample_answers::leaf_rail_fabric();
    fabric.cells.ecn_marked_per_second = vec![Some(187_523.0); 16];
    let mut console = console_showing(NetworkScreen);
    console.deliver_answer(Answer::Fabric(Arc::new(fabric)));
    console.press_keys(&[KeyPress::Char('m'), KeyPress::Char('m')]);
    let screen = console.draw(80, 24);
    assert!(screen[1].ends_with("128 ports · 1 not active"), "{screen:#?}");
    assert_eq!(screen[4], " leaf-00    188k    188k    188k    188k", "{screen:#?}");
    let theme = Theme::new(ColourDepth::Indexed, GlyphSet::Unicode, |_| None);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    screen_frame::draw(&mut buffer, &console.state, theme);
    let bad = theme.style_for(StyleRole::Bad).fg;
    let red = |line: u16| (10..40).filter(|x| buffer[(*x, line)].style().fg == bad).count();
    assert_eq!((red(4), red(3) > 0), (0, true), "only the cell with a port down, in the first row");
}

#[test]
fn unknown_values_are_not_coloured_as_good() {
    let mut overview = sample_answers::fleet_overview(4, 8, |_, _| gaunt_schema::GpuState::Unknown);
    (overview.nodes.live, overview.nodes.down) = (0, 4);
    let console = GoldenConsole::with_overview(overview);
    let theme = Theme::new(ColourDepth::Indexed, GlyphSet::Unicode, |_| None);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    screen_frame::draw(&mut buffer, &console.state, theme);
    let good = theme.style_for(StyleRole::Good).fg;
    let body = (1..22).flat_map(|y| (0..80).map(move |x| (x, y)));
    assert!(body.clone().all(|at| buffer[at].style().fg != good));
    let screen = buffer_lines(&buffer).join("\n");
    assert!(screen.contains("LOST      unknown") && screen.contains("none open; no live node"));
}

#[test]
fn probe_matrix_and_how_a_probe_is_started() {
    let mut console = console_showing(NetworkScreen);
    let effects = console.press_keys(&[KeyPress::Char('p')]);
    assert_eq!(
        effects.last(),
        Some(&ConsoleEffect::Ask(vec![Question::Overview, Question::Probe]))
    );
    let none = ProbeMatrix { at: AT, ..ProbeMatrix::default() };
    console.deliver_answer(Answer::Probe(Arc::new(none)));
    console.expect_golden_at("probe-empty", 80, 24);
    console
        .answer_question(Question::Probe, Answer::Probe(Arc::new(sample_answers::probe_matrix())));
    console.expect_golden("probe");
    console.press_keys(&[
        KeyPress::Down,
        KeyPress::Right,
        KeyPress::Right,
        KeyPress::Right,
        KeyPress::Right,
        KeyPress::Right,
    ]);
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("gpu001 mlx5_0/1 – gpu007 mlx5_0/1   leaf-00 to leaf-01\n failed:"));
    console.press_keys(&[KeyPress::Char('f')]);
    console.expect_golden_at("probe-leaves", 80, 24);
    console.press_keys(&[KeyPress::Char('f'), KeyPress::Char('m')]);
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("rail 1 ") && !screen.contains('▲'), "{screen}");
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(console.state.screen, NodeScreen("gpu001".into()).into());
}

#[test]
fn device_screens_of_a_gpu_and_a_port() {
    let mut console = console_showing(NodeScreen("gpu003".into()));
    console.deliver_answer(Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))));
    for (keys, name) in [
        (vec![KeyPress::Enter], "gpu"),
        (vec![KeyPress::Char('t')], "topology"),
        (vec![KeyPress::Char('e')], "events"),
    ] {
        console.press_keys(&keys);
        console.expect_golden(name);
    }
    let mut console = console_showing(NodeScreen("gpu003".into()));
    console.deliver_answer(Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))));
    console.press_keys(&[KeyPress::Down; 9]);
    console.press_keys(&[KeyPress::Enter]);
    console.expect_golden("port");
}

#[test]
fn heat_map_by_leaf_and_by_value() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.draw(80, 24);
    console.press_keys(&[KeyPress::Char('f')]);
    let names: Vec<String> = (1..=32).map(|n| format!("gpu{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let leaves: Vec<&str> = (0..32).map(|n| ["leaf-a", "leaf-b, leaf-c"][n / 16]).collect();
    let sites = sample_answers::build_table(
        Subject::Nodes,
        vec![
            ("node", sample_answers::text_cells(&names)),
            ("leaf", sample_answers::text_cells(&leaves)),
        ],
    );
    console.deliver_answer(Answer::Table(Arc::new(sites)));
    console.expect_golden("heat-leaf");
    console.press_keys(&[
        KeyPress::Char('f'),
        KeyPress::Char('f'),
        KeyPress::Char('m'),
        KeyPress::Char('m'),
    ]);
    let watts: Vec<Option<f64>> =
        (0..256).map(|n| (n % 9 != 0).then_some(100.0 + f64::from(n))).collect();
    let watts = AnswerCells::Numbers { values: watts, absent: std::collections::BTreeMap::new() };
    console.deliver_answer(Answer::Table(Arc::new(sample_answers::build_table(
        Subject::Gpus,
        vec![("power", watts)],
    ))));
    console.expect_golden("heat-power");
}

#[test]
fn themes_and_depths_show_the_same_text_in_their_own_colours() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let draw_buffer = |console: &mut GoldenConsole, colour, palette| {
        let theme = Theme::new(colour, GlyphSet::Unicode, |_| None).with_palette(palette);
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        screen_frame::draw(&mut buffer, &console.state, theme);
        buffer
    };
    let plain = draw_buffer(&mut console, ColourDepth::None, Palette::Dark);
    assert!(plain.content.iter().all(|cell| cell.fg == ratatui::style::Color::Reset));
    for colour in [ColourDepth::Sixteen, ColourDepth::Indexed, ColourDepth::True] {
        let mut earlier: Vec<Buffer> = Vec::new();
        for palette in Palette::ALL {
            let buffer = draw_buffer(&mut console, colour, palette);
            assert_eq!(buffer_lines(&buffer), buffer_lines(&plain), "{palette:?}");
            assert!(earlier.iter().all(|other| *other != buffer), "{palette:?} equals another");
            earlier.push(buffer);
        }
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/screens");
    for palette in Palette::ALL {
        let buffer = draw_buffer(&mut console, ColourDepth::Indexed, palette);
        let colours: Vec<String> = (0..24).map(|y| colour_runs(&buffer, y)).collect();
        let path = path.join(format!("theme-{}.txt", palette.as_str()));
        let got = colours.join("\n") + "\n";
        if std::env::var_os("GAUNT_BLESS").is_some() {
            fs::write(&path, &got).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(expected == got, "{} differs\ngot:\n{got}", path.display());
    }
}

/// Returns the colours of a line as runs: `245×12 36×8`.
fn colour_runs(buffer: &Buffer, y: u16) -> String {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for x in 0..buffer.area.width {
        let cell = &buffer[(x, y)];
        let mut style = match cell.fg {
            ratatui::style::Color::Indexed(number) => number.to_string(),
            _ => "-".to_owned(),
        };
        for (modifier, sign) in [(Modifier::BOLD, "b"), (Modifier::REVERSED, "r")] {
            if cell.modifier.contains(modifier) {
                style.push_str(sign);
            }
        }
        match runs.last_mut() {
            Some((known, length)) if *known == style => *length += 1,
            _ => runs.push((style, 1)),
        }
    }
    runs.iter().map(|(style, length)| format!("{style}×{length}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn unread_sources_and_files_are_named_below_the_targets() {
    let mut console = console_showing(ListScreen(Subject::Targets));
    assert!(!console.draw(80, 24).join("\n").contains('▲'));
    let mut overview = sample_answers::healthy_overview(8);
    overview.source_trouble = vec![
        "sd.json:3: a group without \"targets\" is skipped".into(),
        "/etc/gaunt/topology.conf:7: RingName is a ring of nodes; skipped".into(),
    ];
    console.deliver_answer(Answer::Overview(Arc::new(overview)));
    let screen = console.draw(80, 24);
    let shown: Vec<&str> =
        screen.iter().map(|line| line.trim_end()).filter(|line| line.contains('▲')).collect();
    let expected = [
        " ▲ sd.json:3: a group without \"targets\" is skipped",
        " ▲ /etc/gaunt/topology.conf:7: RingName is a ring of nodes; skipped",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn load_on_a_queried_server_is_shown_below_the_targets() {
    let mut console = console_showing(ListScreen(Subject::Targets));
    let mut overview = sample_answers::healthy_overview(8);
    overview.source_trouble = vec!["http://prometheus:9090: connection refused".into()];
    overview.source_notes =
        vec!["http://prometheus:9090: 25000 samples in 12 queries every 15 s, answered in 0.4 s; no processes".into()];
    console.deliver_answer(Answer::Overview(Arc::new(overview)));
    let screen = console.draw(80, 24);
    let lines = screen.iter().map(|line| line.trim_end());
    let shown: Vec<&str> = lines.skip_while(|line| !line.contains("9090")).take(3).collect();
    let expected = [
        " ▲ http://prometheus:9090: connection refused",
        " · http://prometheus:9090: 25000 samples in 12 queries every 15 s, answered in",
        "   0.4 s; no processes",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn coverage_is_opened_from_the_targets() {
    let mut console = console_showing(ListScreen(Subject::Targets));
    let effects = console.press_keys(&[KeyPress::Char('v')]);
    assert_eq!(
        effects.last(),
        Some(&ConsoleEffect::Ask(vec![Question::Overview, Question::Coverage]))
    );
    let coverage = Answer::Coverage(Arc::new(gaunt_api::samples::telemetry_coverage()));
    console.answer_question(Question::Coverage, coverage);
    console.expect_golden("coverage");
    console.draw(80, 24);
    console.press_keys(&[KeyPress::Char('G')]);
    console.expect_golden_at("coverage-end", 80, 24);
}
