//! Screen: which one is shown, and of what. Plain data; `screens` draws it and handles its keys.

use gaunt_api::Subject;
use gaunt_schema::{DeviceClass, SanitizedText};

/// Passes the table of the screens to a macro, one row each: the screen, and its type with the parameters.
///
/// A new screen is one row here, and one file in `screens/`.
macro_rules! with_screens {
    ($then:ident) => {
        $then! {
            /// Overview of the fleet.
            Overview(OverviewScreen),
            /// All open findings.
            Findings(FindingsScreen),
            /// One finding, by its id.
            Finding(FindingScreen(SanitizedText)),
            /// Explanation of one finding, by its id.
            Explanation(ExplanationScreen(SanitizedText)),
            /// One node.
            Node(NodeScreen(SanitizedText)),
            /// One GPU or port: its node, its class and its name there.
            Device(DeviceScreen(SanitizedText, DeviceClass, SanitizedText)),
            /// One metric of a GPU or port over time: its node, its class, its name there, and the metric's key.
            Graph(GraphScreen(SanitizedText, DeviceClass, SanitizedText, SanitizedText)),
            /// Topology of a node.
            Topology(TopologyScreen(SanitizedText)),
            /// Recent events of a node.
            Events(EventsScreen(SanitizedText)),
            /// One job.
            Job(JobScreen(SanitizedText)),
            /// Rows of a subject, as a table.
            List(ListScreen(Subject)),
            /// Users with the GPUs that their jobs hold and lose.
            Users(UsersScreen),
            /// Network map: leaves by rails.
            Network(NetworkScreen),
            /// Measurements of the cross-node probe.
            Probe(ProbeScreen),
            /// What is not known of the fleet.
            Coverage(CoverageScreen),
        }
    };
}
pub(crate) use with_screens;

/// Defines the screen type and the type of each screen.
macro_rules! define_screens {
    ($($(#[$doc:meta])* $name:ident($view:ident $(($($parameter:ty),+))?),)+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub(crate) struct $view $(($(pub(crate) $parameter),+))?;

            impl From<$view> for Screen {
                fn from(view: $view) -> Self {
                    Self::$name(view)
                }
            }
        )+

        /// A screen with its parameters.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) enum Screen {
            $($name($view),)+
        }
    };
}

with_screens!(define_screens);

impl Default for Screen {
    fn default() -> Self {
        Self::Overview(OverviewScreen)
    }
}

impl DeviceScreen {
    /// Creates the screen of a GPU by its number.
    pub(crate) fn of_gpu(node: SanitizedText, gpu: &str) -> Self {
        Self(node, DeviceClass::Gpu, SanitizedText::new(&format!("GPU {gpu}")))
    }
}
