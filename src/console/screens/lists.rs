//! Golden screens of lists, jobs, the network, devices and what is around a node; each theme and depth once.

use super::*;
use crate::{
    answer::{Cells, ProbeMatrix},
    console::theme::Meaning,
};

fn showing(place: Place) -> Desk {
    let mut desk = Desk::showing(sample::two_faults(32));
    desk.state.place = place;
    desk
}

/// A table of what a list asks for, made of the columns of a sample.
fn answer_list(desk: &mut Desk, table: crate::answer::Table) {
    let question = desk.state.list(table.subject).question();
    desk.answer_to(question, Answer::Table(Arc::new(table)));
}

#[test]
fn gpus_as_rows() {
    let mut desk = showing(Place::List(Subject::Gpus));
    answer_list(&mut desk, sample::gpu_table());
    desk.press(&[Key::Down, Key::Down]);
    desk.expect("gpus");
}

#[test]
fn jobs_as_rows_and_users() {
    let mut desk = showing(Place::List(Subject::Jobs));
    answer_list(&mut desk, sample::job_table());
    desk.expect("jobs");
    desk.press(&[Key::Char('8')]);
    desk.answer(Answer::Table(Arc::new(sample::job_table())));
    desk.expect("users");
    desk.press(&[Key::Enter]);
    assert_eq!(desk.state.place, Place::List(Subject::Jobs));
    assert_eq!(desk.state.list(Subject::Jobs).rows, "user=alice");
}

#[test]
fn the_processes_of_a_node_are_rows_like_others() {
    let mut desk = showing(Place::Node("gpu003".into()));
    desk.answer(Answer::Node(Arc::new(sample::node("gpu003"))));
    let asked = desk.press(&[Key::Char('p')]);
    let Some(Effect::Ask(questions)) = asked.last() else { panic!("{asked:?}") };
    let Some(Question::Table(filter)) = questions.last() else { panic!("{questions:?}") };
    assert!(filter.text().starts_with("node=gpu003 sort memory desc limit"), "{}", filter.text());
    answer_list(&mut desk, sample::process_table());
    desk.press(&[Key::Down]);
    desk.expect("processes");
    desk.press(&[Key::Enter]);
    let gpu = Place::Device("gpu003".into(), gaunt_schema::Class::Gpu, "GPU 5".into());
    assert_eq!(desk.state.place, gpu);
    desk.press(&[Key::Escape, Key::Char('b')]);
    assert_eq!(desk.state.place, Place::Job("8812".into()));
}

#[test]
fn nodes_as_rows() {
    let names: Vec<String> = (1..=40).map(|n| format!("gpu{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = sample::table(
        Subject::Nodes,
        vec![
            ("node", sample::texts(&names)),
            ("state", sample::texts(&["live"; 40])),
            ("gpu_states", sample::texts(&["wwwwwwww"; 40])),
            ("lost", sample::numbers(&[Some(8.0); 40])),
            ("gpu_utilization", sample::numbers(&[None; 40])),
        ],
    );
    table.total = 12_500;
    let mut desk = showing(Place::List(Subject::Nodes));
    answer_list(&mut desk, table);
    desk.press(&[Key::PageDown, Key::Char('G')]);
    desk.expect("nodes");
}

#[test]
fn a_list_without_rows_says_why() {
    let mut desk = showing(Place::List(Subject::Gpus));
    let mut table = sample::table(Subject::Gpus, Vec::new());
    table.total = 256;
    answer_list(&mut desk, table);
    desk.expect_at("no-rows", 80, 24);
}

#[test]
fn a_job_whose_odd_gpu_stands_out() {
    let mut desk = showing(Place::Job("8812".into()));
    desk.answer(Answer::Job(Arc::new(sample::job())));
    desk.expect("job");
    desk.press(&[Key::Enter]);
    let place = Place::Device("gpu003".into(), gaunt_schema::Class::Gpu, "GPU 5".into());
    assert_eq!(desk.state.place, place);
}

#[test]
fn the_network_by_each_measure() {
    let mut desk = showing(Place::Network);
    desk.answer(Answer::Fabric(Arc::new(sample::fabric())));
    desk.press(&[Key::Down, Key::Right, Key::Right]);
    desk.expect("network");
    for name in ["pauses", "congestion", "errors", "flaps"] {
        desk.press(&[Key::Char('m')]);
        desk.expect_at(&format!("network-{name}"), 80, 24);
    }
    desk.press(&[Key::Enter]);
    assert_eq!(desk.state.list(Subject::Ports).rows, "leaf=leaf-01 and rail=2");
}

#[test]
fn network_rates_fit_into_their_cells_and_only_what_is_blamed_is_red() {
    let mut fabric = sample::fabric();
    fabric.cells.ecn_marked_per_second = vec![Some(187_523.0); 16];
    let mut desk = showing(Place::Network);
    desk.answer(Answer::Fabric(Arc::new(fabric)));
    desk.press(&[Key::Char('m'), Key::Char('m')]);
    let screen = desk.draw(80, 24);
    assert!(screen[1].ends_with("128 ports · 1 not active"), "{screen:#?}");
    assert_eq!(screen[4], " leaf-01   188k   188k   188k   188k", "{screen:#?}");
    let theme = Theme::new(Colour::Indexed, Glyphs::Unicode, |_| None);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    view::draw(&mut buffer, &desk.state, theme);
    let bad = theme.style(Meaning::Bad).fg;
    let red = |line: u16| (10..40).filter(|x| buffer[(*x, line)].style().fg == bad).count();
    assert_eq!((red(4), red(5) > 0), (0, true), "only the cell with a port that is down");
}

#[test]
fn what_is_not_known_is_not_coloured_as_good() {
    let mut overview = sample::fleet(4, 8, |_, _| gaunt_schema::GpuState::Unknown);
    (overview.nodes.live, overview.nodes.down) = (0, 4);
    let desk = Desk::showing(overview);
    let theme = Theme::new(Colour::Indexed, Glyphs::Unicode, |_| None);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    view::draw(&mut buffer, &desk.state, theme);
    let good = theme.style(Meaning::Good).fg;
    let body = (1..22).flat_map(|y| (0..80).map(move |x| (x, y)));
    assert!(body.clone().all(|at| buffer[at].style().fg != good));
    let screen = lines(&buffer).join("\n");
    assert!(screen.contains("not known") && screen.contains("none open, and no node is read"));
}

#[test]
fn the_probe_matrix_and_how_it_is_begun() {
    let mut desk = showing(Place::Network);
    let asked = desk.press(&[Key::Char('p')]);
    assert_eq!(asked.last(), Some(&Effect::Ask(vec![Question::Overview, Question::Probe])));
    let none = ProbeMatrix { at: AT, ..ProbeMatrix::default() };
    desk.answer(Answer::Probe(Arc::new(none)));
    desk.expect_at("probe-empty", 80, 24);
    desk.answer_to(Question::Probe, Answer::Probe(Arc::new(sample::probe())));
    desk.expect("probe");
    desk.press(&[Key::Down, Key::Right, Key::Right, Key::Right, Key::Right, Key::Right]);
    let screen = desk.draw(80, 24).join("\n");
    assert!(screen.contains("gpu001 mlx5_0:1 – gpu007 mlx5_0:1 leaf-00 to leaf-01 failed"));
    desk.press(&[Key::Char('f')]);
    desk.expect_at("probe-leaves", 80, 24);
    desk.press(&[Key::Char('f'), Key::Char('m')]);
    let screen = desk.draw(80, 24).join("\n");
    assert!(screen.contains("rail 1 ") && !screen.contains('▲'), "{screen}");
    desk.press(&[Key::Enter]);
    assert_eq!(desk.state.place, Place::Node("gpu001".into()));
}

#[test]
fn a_gpu_a_port_and_what_is_around_them() {
    let mut desk = showing(Place::Node("gpu003".into()));
    desk.answer(Answer::Node(Arc::new(sample::node("gpu003"))));
    for (keys, name) in [
        (vec![Key::Enter], "gpu"),
        (vec![Key::Char('t')], "topology"),
        (vec![Key::Char('e')], "events"),
    ] {
        desk.press(&keys);
        desk.expect(name);
    }
    let mut desk = showing(Place::Node("gpu003".into()));
    desk.answer(Answer::Node(Arc::new(sample::node("gpu003"))));
    desk.press(&[Key::Down; 9]);
    desk.press(&[Key::Enter]);
    desk.expect("port");
}

#[test]
fn the_heat_map_by_leaf_and_by_value() {
    let mut desk = Desk::showing(sample::two_faults(32));
    desk.draw(80, 24);
    desk.press(&[Key::Char('f')]);
    let names: Vec<String> = (1..=32).map(|n| format!("gpu{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let leaves: Vec<&str> = (0..32).map(|n| ["leaf-a", "leaf-b, leaf-c"][n / 16]).collect();
    let sites = sample::table(
        Subject::Nodes,
        vec![("node", sample::texts(&names)), ("leaf", sample::texts(&leaves))],
    );
    desk.answer(Answer::Table(Arc::new(sites)));
    desk.expect("heat-leaf");
    desk.press(&[Key::Char('f'), Key::Char('f'), Key::Char('m'), Key::Char('m')]);
    let watts: Vec<Option<f64>> =
        (0..256).map(|n| (n % 9 != 0).then_some(100.0 + f64::from(n))).collect();
    let watts = Cells::Numbers { values: watts, absent: std::collections::BTreeMap::new() };
    desk.answer(Answer::Table(Arc::new(sample::table(Subject::Gpus, vec![("power", watts)]))));
    desk.expect("heat-power");
}

#[test]
fn each_theme_and_depth_says_the_same_in_its_own_colours() {
    let mut desk = Desk::showing(sample::two_faults(32));
    let picture = |desk: &mut Desk, colour, palette| {
        let theme = Theme::new(colour, Glyphs::Unicode, |_| None).painted(palette);
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        view::draw(&mut buffer, &desk.state, theme);
        buffer
    };
    let plain = picture(&mut desk, Colour::None, Palette::Dark);
    assert!(plain.content.iter().all(|cell| cell.fg == ratatui::style::Color::Reset));
    for colour in [Colour::Sixteen, Colour::Indexed, Colour::True] {
        let mut seen: Vec<Buffer> = Vec::new();
        for palette in Palette::ALL {
            let buffer = picture(&mut desk, colour, palette);
            assert_eq!(lines(&buffer), lines(&plain), "{palette:?}");
            assert!(seen.iter().all(|other| *other != buffer), "{palette:?} looks like another");
            seen.push(buffer);
        }
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/screens");
    for palette in Palette::ALL {
        let buffer = picture(&mut desk, Colour::Indexed, palette);
        let colours: Vec<String> = (0..24).map(|y| coloured(&buffer, y)).collect();
        let path = path.join(format!("theme-{}.txt", palette.as_str()));
        let got = colours.join("\n") + "\n";
        if std::env::var_os("GAUNT_BLESS").is_some() {
            fs::write(&path, &got).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(expected == got, "{} differs\ngot:\n{got}", path.display());
    }
}

/// The colours of a line as runs: `245×12 36×8`.
fn coloured(buffer: &Buffer, y: u16) -> String {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for x in 0..buffer.area.width {
        let cell = &buffer[(x, y)];
        let mut look = match cell.fg {
            ratatui::style::Color::Indexed(number) => number.to_string(),
            _ => "-".to_owned(),
        };
        for (modifier, sign) in [(Modifier::BOLD, "b"), (Modifier::REVERSED, "r")] {
            if cell.modifier.contains(modifier) {
                look.push_str(sign);
            }
        }
        match runs.last_mut() {
            Some((known, length)) if *known == look => *length += 1,
            _ => runs.push((look, 1)),
        }
    }
    runs.iter().map(|(look, length)| format!("{look}×{length}")).collect::<Vec<_>>().join(" ")
}
