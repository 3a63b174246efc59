//! Questions and their answers: the one vocabulary of the HTTP API, the console and `gaunt snapshot`.
//!
//! Words and types only: what can be asked, the language that narrows it, the shapes of answers and the differences
//! between two of them. An answer is immutable once made; big ones are columns, never one object per GPU.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub mod alert_list;
pub mod answer_table;
pub mod explanation;
pub mod fabric_matrix;
pub mod field;
pub mod filter;
pub mod finding;
pub mod finding_action;
pub mod finding_group;
pub mod gpu_time;
pub mod history_answer;
pub mod job_answer;
pub mod json_diff;
pub mod loss_cause;
pub mod node_detail;
pub mod overview;
pub mod probe_matrix;
mod routes;
pub mod target_list;
pub mod time_param;
pub mod usage_report;

pub use alert_list::{AlertLine, AlertList, AlertServer, AlertSilence, AlertState};
pub use answer_table::{AnswerCells, AnswerColumn, AnswerTable};
pub use explanation::{
    AlternativeDetail, AlternativeOutcome, EvidenceContext, Explanation, LimitDetail, SignalDetail,
};
pub use fabric_matrix::{FabricCellColumns, FabricMatrix};
pub use field::{BuiltinField, FieldKey, FieldKind, Subject, SubjectField};
pub use filter::{Filter, FilterError};
pub use finding::{
    Acknowledgement, EvidenceItem, Finding, FindingLifecycle, FindingList, HistoryRelation,
    LifecycleChange,
};
pub use finding_action::{FindingAction, FindingCommand};
pub use finding_group::{FindingGroup, FindingLine, JobOwner};
pub use gpu_time::{GpuTime, JobLostTime, JobTime};
pub use history_answer::{HistoryAggregation, HistoryQuery, MetricHistory};
pub use job_answer::{GpuTimeline, JobDetail, JobTimeline, StateTime};
pub use loss_cause::LossCause;
pub use node_detail::{DeviceDetail, MetricSeries, NodeDetail, NodeLine, NodeList, NodeState};
pub use overview::{HeatMap, LostGpuTime, NodeCounts, Overview, StateCount};
pub use probe_matrix::{PairEnd, ProbeMatrix, ProbePair, ProbeSuspect, RailMatrix, SuspectKind};
pub use routes::PATHS;
pub use target_list::{CumulativeTotals, LimitOmissions, TargetLine, TargetList, TargetState};
pub use time_param::TimeParam;
pub use usage_report::{UsageReport, UsageRow};

use gaunt_schema::SanitizedText;

/// The path under which the HTTP API lives; the version changes when an answer loses or renames a field.
pub const API: &str = "/api/gaunt/v1";

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The whole fleet at a glance.
    Overview,
    /// Every node in a line each, worst first.
    Nodes,
    /// One node with all its devices, values and their recent past.
    Node(SanitizedText),
    /// Every open finding, worst first.
    Findings,
    /// Every finding that closed and is still remembered, newest first.
    Closed,
    /// What the GPUs of each job do, and the time that was lost, by job and cause.
    GpuTime,
    /// One finding, open or closed, with the whole chain of evidence.
    Finding(String),
    /// Every target with the fate of its last scrape.
    Targets,
    /// Those nodes, findings or targets that a filter leaves, in a line each as in the whole list.
    List(Filter),
    /// The rows that a filter leaves, as columns.
    Table(Filter),
    /// One job with all its GPUs.
    Job(SanitizedText),
    /// Leaves by rails, of the ports that a filter leaves.
    Fabric(Filter),
    /// One metric of one device, or of many together, over time.
    History(HistoryQuery),
    /// What probes between nodes measured, and who is suspected.
    Probe,
    /// Where GPU time and energy went in the last while.
    Usage(std::time::Duration),
    /// What Alertmanager knows of findings.
    Alerts,
    /// The same question as it would have been answered at an instant of the past. What is not kept is absent.
    AtTime(TimeParam, Box<Question>),
}

/// What comes back.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// To [`Question::Overview`].
    Overview(Arc<Overview>),
    /// To [`Question::Nodes`].
    Nodes(Arc<NodeList>),
    /// To [`Question::Node`].
    Node(Arc<NodeDetail>),
    /// To [`Question::Findings`] and [`Question::Closed`].
    Findings(Arc<FindingList>),
    /// To [`Question::GpuTime`].
    GpuTime(Arc<GpuTime>),
    /// To [`Question::Finding`].
    Finding(Arc<Explanation>),
    /// To [`Question::Targets`].
    Targets(Arc<TargetList>),
    /// To [`Question::Table`].
    Table(Arc<AnswerTable>),
    /// To [`Question::Job`].
    Job(Arc<JobDetail>),
    /// To [`Question::Fabric`].
    Fabric(Arc<FabricMatrix>),
    /// To [`Question::History`].
    History(Arc<MetricHistory>),
    /// To [`Question::Probe`].
    Probe(Arc<ProbeMatrix>),
    /// To [`Question::Usage`].
    Usage(Arc<UsageReport>),
    /// To [`Question::Alerts`].
    Alerts(Arc<AlertList>),
    /// The question makes no sense here; says why.
    Refused(Refusal),
}

impl Answer {
    /// Reads the answer to a question back from its JSON.
    pub fn from_json(
        question: &Question,
        json: &serde_json::Value,
    ) -> Result<Self, serde_json::Error> {
        fn of<T: serde::de::DeserializeOwned>(
            json: &serde_json::Value,
        ) -> Result<Arc<T>, serde_json::Error> {
            T::deserialize(json).map(Arc::new)
        }
        Ok(match question {
            Question::Overview => Self::Overview(of(json)?),
            Question::Nodes => Self::Nodes(of(json)?),
            Question::Node(_) => Self::Node(of(json)?),
            Question::Findings | Question::Closed => Self::Findings(of(json)?),
            Question::GpuTime => Self::GpuTime(of(json)?),
            Question::Finding(_) => Self::Finding(of(json)?),
            Question::Targets => Self::Targets(of(json)?),
            Question::List(filter) => match filter.subject() {
                Subject::Findings | Subject::Closed => Self::Findings(of(json)?),
                Subject::Targets => Self::Targets(of(json)?),
                _ => Self::Nodes(of(json)?),
            },
            Question::Table(_) => Self::Table(of(json)?),
            Question::Job(_) => Self::Job(of(json)?),
            Question::Fabric(_) => Self::Fabric(of(json)?),
            Question::History(_) => Self::History(of(json)?),
            Question::Probe => Self::Probe(of(json)?),
            Question::Usage(_) => Self::Usage(of(json)?),
            Question::Alerts => Self::Alerts(of(json)?),
            Question::AtTime(_, question) => return Self::from_json(question, json),
        })
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "refused")]
pub enum Refusal {
    /// No node has this name.
    #[error("no node is named {node}; `gaunt snapshot` or /api/gaunt/v1/nodes lists the names")]
    UnknownNode {
        /// The name that was asked for.
        node: SanitizedText,
    },
    /// No job has this number.
    #[error("no job {job} holds a GPU now; /api/gaunt/v1/jobs lists the jobs")]
    UnknownJob {
        /// The number that was asked for.
        job: SanitizedText,
    },
    /// No finding has this id.
    #[error(
        "no finding {finding} is open, and none is remembered; /api/gaunt/v1/findings and /api/gaunt/v1/closed list the ids"
    )]
    UnknownFinding {
        /// The id that was asked for.
        finding: SanitizedText,
    },
    /// What is closed needs nobody.
    #[error("{finding} is closed; only open findings can be acknowledged")]
    ClosedFinding {
        /// Its id.
        finding: SanitizedText,
    },
    /// Somebody took it on before.
    #[error("{finding} is acknowledged by {by} already; withdraw that first")]
    AlreadyAcknowledged {
        /// Its id.
        finding: SanitizedText,
        /// Who did.
        by: SanitizedText,
    },
    /// Its fault is one at every level.
    #[error(
        "{finding} does not rest on what is usual, so that no level can be accepted; acknowledge it without --accept"
    )]
    NotAcceptable {
        /// Its id.
        finding: SanitizedText,
    },
    /// There is nothing to take back.
    #[error("{finding} is not acknowledged by anybody")]
    NotAcknowledged {
        /// Its id.
        finding: SanitizedText,
    },
    /// Nobody may do anything here.
    #[error(
        "this aggregator is only read: it has no token, or cannot read it; give it one with serve.token_file in its settings, or --token-file"
    )]
    WritingOff,
    /// Who acts did not say that he may.
    #[error(
        "who acts needs the aggregator's token: --token-file FILE or GAUNT_TOKEN with gaunt, `Authorization: Bearer TOKEN` over HTTP"
    )]
    NoToken,
    /// It is another token.
    #[error("this is not the aggregator's token")]
    WrongToken,
    /// Nothing can be asked like this.
    #[error("there is no question {ask}; {} are", known_paths())]
    UnknownQuestion {
        /// What was asked.
        ask: SanitizedText,
    },
    /// A parameter cannot be taken.
    #[error("parameter {parameter} {why}")]
    BadParameter {
        /// Which one.
        parameter: SanitizedText,
        /// What is wrong with it, and what can be said instead.
        why: SanitizedText,
    },
    /// The filter is not understood.
    #[error("the filter is not understood: {error}")]
    BadFilter {
        /// Where and why.
        error: FilterError,
    },
    /// Nothing is kept of the instant.
    #[error("nothing is kept of that instant; the past that is kept begins {seconds} s ago")]
    NotKept {
        /// How long ago what is kept begins.
        seconds: u64,
    },
    /// The question is about more than can be answered at once.
    #[error("{devices} devices are too many for one history; narrow the filter to {limit}")]
    TooMany {
        /// How many it is about.
        devices: u32,
        /// How many can be.
        limit: u32,
    },
}

impl Refusal {
    /// Whether who asked may not.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::WritingOff | Self::NoToken | Self::WrongToken)
    }

    /// Whether the question could never be answered, however the fleet is.
    pub fn is_invalid(&self) -> bool {
        !self.is_not_found() && !self.is_conflict() && !self.is_denied()
    }

    /// Whether what was asked for is not there now.
    fn is_not_found(&self) -> bool {
        matches!(
            self,
            Self::UnknownNode { .. }
                | Self::UnknownJob { .. }
                | Self::UnknownFinding { .. }
                | Self::NotKept { .. }
        )
    }

    /// Whether it is there, and not in the state that the deed needs.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::ClosedFinding { .. }
                | Self::AlreadyAcknowledged { .. }
                | Self::NotAcceptable { .. }
                | Self::NotAcknowledged { .. }
        )
    }
}

impl From<FilterError> for Refusal {
    fn from(error: FilterError) -> Self {
        Self::BadFilter { error }
    }
}

fn known_paths() -> String {
    PATHS.map(|(path, _)| path).join(", ")
}
