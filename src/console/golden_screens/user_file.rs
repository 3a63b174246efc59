//! The user's own file: bound keys, plug-ins, contexts, theme and restricted mode, from keys to effects.

use super::*;
use crate::{
    console_state::Restriction,
    display_units::DisplayUnits,
    key_press::KeyPress,
    user_config::{ContextAddress, NotificationForm, UserBinding, UserConfig, plugin_key},
};

fn plugin(key: char, run: &[&str], input: Option<&str>) -> plugin_key::PluginKey {
    plugin_key::PluginKey {
        key: KeyPress::Char(key),
        label: key.to_string(),
        name: run[0].to_owned(),
        run: run.iter().map(|argument| (*argument).to_owned()).collect(),
        input: input.map(str::to_owned),
        confirm: true,
        background: false,
    }
}

fn sample_config() -> UserConfig {
    let binding = |key: char, command: &str| UserBinding {
        key: KeyPress::Char(key),
        label: key.to_string(),
        command: command.to_owned(),
    };
    let address = ContextAddress { aggregator: "https://10.0.0.5:9771".into(), token_file: None };
    UserConfig {
        path: Some("/home/mira/.config/gaunt/config.toml".into()),
        contexts: [("prod-b".to_owned(), address)].into(),
        aliases: [("hot".to_owned(), "filter temperature>80C".to_owned())].into(),
        bindings: vec![binding('F', "findings"), binding('x', "key Enter"), binding('X', "wibble")],
        columns: [("gpus".to_owned(), "node,gpu,power".to_owned())].into(),
        notification: NotificationForm::Osc9,
        plugins: vec![
            plugin('S', &["ssh", "{node}"], None),
            plugin('D', &["scontrol", "nodename={node}", "reason={input}"], Some("reason")),
        ],
        errors: vec!["speed is not known; known are theme and keys".to_owned()],
        ..UserConfig::default()
    }
}

fn configured_console(restriction: Restriction) -> GoldenConsole {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.state.apply_config(sample_config(), restriction);
    console
}

#[test]
fn bound_keys_run_commands_and_errors_are_shown() {
    let mut console = configured_console(Restriction::default());
    let screen = console.draw(160, 48).join("\n");
    assert!(
        screen.contains("/home/mira/.config/gaunt/config.toml: speed is not known"),
        "{screen}"
    );
    console.press_keys(&[KeyPress::Char('F')]);
    assert_eq!(console.state.screen, FindingsScreen.into());
    let effects = console.press_keys(&[KeyPress::Char('x')]);
    assert_eq!(effects, [ConsoleEffect::Press(KeyPress::Enter)]);
    console.press_keys(&[KeyPress::Char('X')]);
    assert!(console.draw(160, 48).join("\n").contains("wibble: unknown command wibble"));
    console.press_keys(&[KeyPress::Char('6'), KeyPress::Char(':')]);
    console.type_text("hot");
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(console.state.list_state(Subject::Gpus).rows, "temperature>80C");
    let columns = console.state.list_state(Subject::Gpus).shown_columns();
    assert_eq!(columns.len(), 3, "{columns:?}");
    console.press_keys(&[KeyPress::Char('?'), KeyPress::End]);
    let help = console.draw(160, 48).join("\n");
    for part in
        ["YOUR FILE: /home/mira", "F         :findings", "ssh {node}", "▲ speed is not known"]
    {
        assert!(help.contains(part), "{part} in\n{help}");
    }
}

#[test]
fn plugin_runs_after_its_question_with_values_of_the_item() {
    let mut console = configured_console(Restriction::default());
    console.press_keys(&[KeyPress::Char('S')]);
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("? run ssh gpu003?") && screen.contains("y: run"), "{screen}");
    let effects = console.press_keys(&[KeyPress::Char('y')]);
    let [ConsoleEffect::Run(command)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(command.argv, ["ssh", "gpu003"]);
    console.press_keys(&[KeyPress::Char('D')]);
    assert!(console.draw(80, 24).join("\n").contains("reason   Enter: go on"));
    console.type_text("bad fan");
    console.press_keys(&[KeyPress::Enter]);
    assert!(console.draw(80, 24).join("\n").contains("\"reason=bad fan\"?"));
    assert_eq!(console.press_keys(&[KeyPress::Escape]), [], "any other key cancels");
    console.state.screen = crate::screen::UsersScreen.into();
    console.press_keys(&[KeyPress::Char('S')]);
    assert!(console.draw(80, 24).join("\n").contains("ssh: needs a node; choose an item"));
}

#[test]
fn contexts_are_opened_by_name() {
    let mut console = configured_console(Restriction::default());
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("ctx prod-a");
    console.press_keys(&[KeyPress::Enter]);
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("prod-a is not in [contexts]; known are prod-b"), "{screen}");
    console.press_keys(&[KeyPress::Backspace]);
    console.type_text("b");
    let effects = console.press_keys(&[KeyPress::Enter]);
    assert_eq!(effects, [ConsoleEffect::OpenContext("prod-b".into())]);
}

#[test]
fn restricted_console_reaches_nothing_outside() {
    let restriction = Restriction { confined: true, no_copy: true };
    let mut console = configured_console(restriction);
    console.state.config.plugins.clear();
    for (line, why) in [
        ("write csv /tmp/rows.csv", "no file is written in restricted mode"),
        ("ctx prod-b", "no other aggregator is opened in restricted mode"),
    ] {
        console.press_keys(&[KeyPress::Char('6'), KeyPress::Char(':')]);
        console.type_text(line);
        assert_eq!(console.press_keys(&[KeyPress::Enter]), []);
        assert!(console.draw(80, 24).join("\n").contains(why), "{line}");
        console.press_keys(&[KeyPress::Escape]);
    }
    console.press_keys(&[KeyPress::Char('1')]);
    for key in [KeyPress::Char('y'), KeyPress::Char('Y'), KeyPress::Ctrl('z'), KeyPress::Char('S')]
    {
        assert_eq!(console.press_keys(&[key]), [], "{key:?}");
    }
    console.state.restriction.no_copy = false;
    let effects = console.press_keys(&[KeyPress::Char('y')]);
    assert!(matches!(effects[..], [ConsoleEffect::Copy(_)]), "{effects:?}");
}

#[test]
fn finding_is_copied_as_markdown() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.state.source = Some("10.0.0.5:9771".into());
    let effects = console.press_keys(&[KeyPress::Char('Y')]);
    let [ConsoleEffect::Copy(text)] = &effects[..] else { panic!("{effects:?}") };
    for part in [
        "### port\\_down on gpu003 · mlx5\\_1/1 (critical, confidence 97 %)",
        "- **Cost**: 112.0 GPUs lost, 280.00 USD per hour",
        "- **Owner**: job 8812 llama-pt of alice",
        "- **Victims**: 8 GPUs of gpu003: 0-7",
        "| logical state | 1 | \\< 4 | 1 down, 4 active |",
        "http://10.0.0.5:9771/api/gaunt/v1/findings/port_down/gpu003/mlx5_1/1",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    console.press_keys(&[KeyPress::Char('5'), KeyPress::Char('Y')]);
    assert!(console.draw(80, 24).join("\n").contains("choose a finding to copy it"));
}

#[test]
fn new_critical_finding_rings_and_notifies_as_the_user_chose() {
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(32));
    console.state.apply_config(sample_config(), Restriction::default());
    let faulty = Answer::Overview(Arc::new(sample_answers::two_faults_overview(32)));
    let effects = console.deliver_answer(faulty.clone());
    let text = SanitizedText::new(&sample_answers::port_down_finding().summary);
    let notified = ConsoleEffect::Notify(NotificationForm::Osc9, text);
    assert!(effects.contains(&ConsoleEffect::Bell) && effects.contains(&notified), "{effects:?}");
    console.deliver_answer(Answer::Overview(Arc::new(sample_answers::healthy_overview(32))));
    console.state.config.silent = true;
    console.state.config.notification = NotificationForm::Off;
    assert!(!console.deliver_answer(faulty).contains(&ConsoleEffect::Bell));
}

#[test]
fn rows_are_opened_by_command_saved_and_forgotten() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let run = |console: &mut GoldenConsole, line: &str| {
        console.press_keys(&[KeyPress::Char(':')]);
        console.type_text(line);
        console.press_keys(&[KeyPress::Enter])
    };
    run(&mut console, "nodes lost>0 sort lost desc");
    assert_eq!(console.state.screen, ListScreen(Subject::Nodes).into());
    assert_eq!(console.state.list_state(Subject::Nodes).rows, "lost>0");
    let effects = run(&mut console, "save bad");
    let [ConsoleEffect::SavePreferences(saved)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(saved.saved["bad"], "nodes lost>0 sort lost desc");
    console.press_keys(&[KeyPress::Escape, KeyPress::Char('6')]);
    assert_eq!(console.state.list_state(Subject::Nodes).rows, "");
    run(&mut console, "bad");
    assert_eq!(console.state.list_state(Subject::Nodes).rows, "lost>0");
    run(&mut console, "nodes powr>0");
    assert!(console.draw(120, 35).join("\n").contains("powr"), "the prompt names the fault");
    console.press_keys(&[KeyPress::Escape]);
    assert_eq!(run(&mut console, "forget bad").len(), 1);
    assert!(console.state.preferences.saved.is_empty());
    run(&mut console, "forget bad");
    assert!(console.draw(120, 35).join("\n").contains("bad is not saved; saved is nothing"));
}

#[test]
fn whole_screen_is_in_the_time_zone_of_the_user() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let utc = console.draw(120, 35).join("\n");
    assert!(utc.contains("12:03:41Z ●"), "{utc}");
    console.state.utc_offset = Some(7_200);
    let local = console.draw(120, 35).join("\n");
    assert!(local.contains("14:03:41  ●") && !local.contains("Z ●"), "{local}");
    assert_eq!(utc.lines().count(), local.lines().count());
    console.press_keys(&[KeyPress::Char('?')]);
    assert!(console.draw(160, 48).join("\n").contains("times are UTC+02:00"));
}

#[test]
fn units_of_the_user_are_those_of_each_table() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.state.screen = NodeScreen("gpu003".into()).into();
    console.deliver_answer(Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))));
    let mut units = DisplayUnits::default();
    for (name, value) in
        [("temperature", "fahrenheit"), ("traffic", "bytes"), ("memory", "decimal")]
    {
        units.choose(name, value).unwrap();
    }
    let theme = Theme::new(ColourDepth::Indexed, GlyphSet::Unicode, |_| None);
    let mut draw =
        |units| buffer_lines(&console.draw_buffer(200, 80, theme.with_units(units))).join("\n");
    let (own, chosen) = (draw(DisplayUnits::default()), draw(units));
    for (default, other) in
        [("°C", "°F"), ("400 Gb/s", "50 GB/s"), ("mem GiB", "mem GB"), ("GiB used", "GB used")]
    {
        assert!(own.contains(default) && !own.contains(other), "{own}");
        assert!(chosen.contains(other) && !chosen.contains(default), "{chosen}");
    }
}
