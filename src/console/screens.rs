//! Views of the screens, one file each: dispatches to the view of a screen, and finds screens by number and command.

use crate::{
    screen::{self, Screen, with_screens},
    screen_view::{ScreenCommand, ScreenView},
};

pub(crate) mod coverage_screen;
pub(crate) mod device_screen;
pub(crate) mod events_screen;
pub(crate) mod explanation_screen;
pub(crate) mod finding_screen;
pub(crate) mod findings_screen;
pub(crate) mod graph_screen;
pub(crate) mod job_screen;
pub(crate) mod list_screen;
pub(crate) mod network_screen;
pub(crate) mod node_screen;
pub(crate) mod overview_screen;
pub(crate) mod probe_screen;
pub(crate) mod topology_screen;
pub(crate) mod users_screen;

/// Defines what is the same for every row of the table.
macro_rules! dispatch_screens {
    ($($(#[$doc:meta])* $name:ident($view:ident $($parameters:tt)?),)+) => {
        /// Returns the view of a screen.
        pub(crate) fn view_of(screen: &Screen) -> &dyn ScreenView {
            match screen {
                $(Screen::$name(view) => view,)+
            }
        }

        /// Number of rows.
        #[cfg(test)]
        const SCREENS: usize = [$(stringify!($name)),+].len();

        /// Returns the commands that open screens, in the order of the table.
        pub(crate) fn screen_commands() -> impl Iterator<Item = &'static ScreenCommand> {
            [$(<screen::$view>::commands()),+].into_iter().flatten()
        }
    };
}

with_screens!(dispatch_screens);

/// Returns the main screen of a number.
pub(crate) fn main_screen(number: u8) -> Screen {
    let found = screen_commands().find(|command| command.number() == Some(number));
    found.and_then(|command| (command.open)("").ok()).unwrap_or_default()
}

/// Returns the commands of the main screens, by their numbers.
pub(crate) fn main_commands() -> Vec<&'static ScreenCommand> {
    let mut commands: Vec<_> = screen_commands().filter(|one| one.main.is_some()).collect();
    commands.sort_by_key(|command| command.number());
    commands
}

/// Returns the commands of the screens that have no number.
pub(crate) fn other_commands() -> impl Iterator<Item = &'static ScreenCommand> {
    screen_commands().filter(|command| command.main.is_none())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{collections::HashSet, mem::discriminant};

    use gaunt_schema::DeviceClass;

    use super::*;
    use crate::screen::{
        DeviceScreen, EventsScreen, ExplanationScreen, FindingScreen, GraphScreen, JobScreen,
        NodeScreen, TopologyScreen,
    };

    /// Returns every screen at least once.
    pub(crate) fn all_screens() -> Vec<Screen> {
        let (node, id) = (|| "gpu003".into(), || "port_down/gpu003/mlx5_1/1".into());
        let mut screens: Vec<Screen> = vec![
            FindingScreen(id()).into(),
            ExplanationScreen(id()).into(),
            NodeScreen(node()).into(),
            DeviceScreen::of_gpu(node(), "0").into(),
            DeviceScreen(node(), DeviceClass::Port, "mlx5_1/1".into()).into(),
            GraphScreen(node(), DeviceClass::Gpu, "GPU 0".into(), "gpu_power_watts".into()).into(),
            TopologyScreen(node()).into(),
            EventsScreen(node()).into(),
            JobScreen("8812".into()).into(),
        ];
        let commands = screen_commands().filter(|command| command.arguments.is_empty());
        screens.extend(commands.map(|command| command.parse_arguments("").unwrap()));
        screens
    }

    #[test]
    fn main_screens_have_unique_numbers_and_words() {
        let commands = main_commands();
        let numbers: Vec<_> = commands.iter().filter_map(|command| command.number()).collect();
        assert_eq!(numbers, (1..=9).collect::<Vec<u8>>());
        let words: HashSet<_> = screen_commands().map(|command| command.word).collect();
        assert_eq!(words.len(), screen_commands().count());
        for command in &commands[1..] {
            assert_ne!((command.open)("").unwrap(), Screen::default(), "{}", command.word);
        }
    }

    #[test]
    fn sample_screens_include_each_kind() {
        let known: HashSet<_> = all_screens().iter().map(discriminant).collect();
        assert_eq!(known.len(), SCREENS);
    }
}
