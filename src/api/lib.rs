//! Questions and answers: the shared data model of the HTTP API, the console and `gaunt snapshot`.
//!
//! Types only: the questions, the filter language, the shapes of answers and the diff of two answers. An answer is
//! immutable; large answers are columns, never one object per GPU.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub mod access_role;
pub mod alert_list;
pub mod answer_table;
mod csv_text;
pub mod evidence_query;
pub mod explanation;
pub mod fabric_matrix;
pub mod field;
pub mod filter;
pub mod finding_action;
pub mod finding_context;
pub mod finding_group;
pub mod finding_list;
pub mod finding_place;
pub mod finding_text;
pub mod fleet_change;
pub mod gpu_time;
pub mod history_answer;
pub mod html_page;
pub mod job_answer;
pub mod json_diff;
pub mod loss_cause;
pub mod node_detail;
#[cfg(test)]
mod openapi;
pub mod overview;
pub mod peer_exchange;
pub mod probe_matrix;
mod routes;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod store_line;
pub mod target_list;
pub mod telemetry_coverage;
pub mod time_param;
pub mod usage_report;
pub mod victim_groups;

pub use access_role::AccessRole;
pub use alert_list::{AlertLine, AlertList, AlertServer, AlertSilence, AlertState};
pub use answer_table::{AnswerCells, AnswerColumn, AnswerTable};
pub use csv_text::csv_line;
pub use explanation::{EarlierFinding, Explanation, LimitDetail};
pub use fabric_matrix::{
    FABRIC_SERIES, FabricCellColumns, FabricCellSeries, FabricMatrix, PORT_STATES,
};
pub use field::{
    BuiltinField, FieldKey, FieldKind, FindingField, GpuField, JobField, NodeField, PortField,
    ProcessField, Subject, SubjectBuiltin, SubjectField, TargetField,
};
pub use filter::{Filter, FilterError};
pub use finding_action::{FindingAction, FindingCommand, SeenFinding};
pub use finding_context::{CONTEXT_ITEMS, FindingContext, VictimJob};
pub use finding_group::{FindingGroup, FindingLine, JobOwner};
pub use finding_list::FindingList;
pub use finding_text::{EvidencePlot, FindingText};
pub use fleet_change::{FleetChange, FleetChangeKind, NAMED_NODES};
pub use gpu_time::{GpuTime, JobLostTime, JobTime};
pub use history_answer::{HistoryAggregation, HistoryQuery, MetricHistory};
pub use job_answer::{GpuTimeline, JobDetail, JobTimeline, StateTime};
pub use loss_cause::LossCause;
pub use node_detail::{DeviceDetail, MetricSeries, NodeDetail, NodeLine, NodeList, NodeState};
pub use overview::{HeatMap, LostGpuTime, NodeCounts, Overview, StateCount};
pub use peer_exchange::{
    PeerAction, PeerCommand, PeerLine, PeerOutcome, PeerReply, PeerState, PeerStatus,
};
pub use probe_matrix::{PairEnd, ProbeMatrix, ProbePair, ProbeSuspect, RailMatrix, SuspectKind};
pub use routes::PATHS;
pub use store_line::StoreLine;
pub use target_list::{CumulativeTotals, LimitOmissions, TargetLine, TargetList, TargetState};
pub use telemetry_coverage::{
    CoverageCheck, CoverageKind, CoverageState, OriginCount, RenewalGroup, TelemetryCoverage,
};
pub use time_param::TimeParam;
pub use usage_report::{UsageReport, UsageRow};

pub use gaunt_schema::{
    Acknowledgement, AlternativeDetail, AlternativeOutcome, EvidenceContext, EvidenceItem,
    EvidenceRole, Finding, FindingLifecycle, HistoryRelation, LifecycleChange, LimitSide,
    SignalDetail,
};
use gaunt_schema::{SanitizedText, UnixMs, time::format_time_of_day};

/// Base path of the HTTP API; the version changes when an answer loses or renames a field.
pub const API: &str = "/api/gaunt/v1";

/// A question to the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// Summary of the whole fleet.
    Overview,
    /// All nodes, one line each, worst first.
    Nodes,
    /// One node with its devices, values and recent history.
    Node(SanitizedText),
    /// Every open finding, worst first.
    Findings,
    /// Findings that are closed and still retained, newest first.
    Closed,
    /// GPU states of each job, and lost time by job and cause.
    GpuTime,
    /// One finding, open or closed, with its explanation.
    Finding(String),
    /// All targets with the result of their last scrape.
    Targets,
    /// The nodes, findings or targets that match a filter, one line each as in the whole list.
    List(Filter),
    /// The rows that match a filter, as columns.
    Table(Filter),
    /// One job with all its GPUs.
    Job(SanitizedText),
    /// Leaf × rail matrix of the ports that match a filter.
    Fabric(Filter),
    /// One metric of one device, or aggregated over many, over time.
    History(HistoryQuery),
    /// Measurements of probes between nodes, and suspects.
    Probe,
    /// GPU time and energy use of the given period up to now.
    Usage(std::time::Duration),
    /// Alertmanager's state of findings.
    Alerts,
    /// What gaunt does not know: unjoined nodes, unknown topology, missing metrics, renewal intervals.
    Coverage,
    /// The same question at a past time. Data that is not retained is absent.
    AtTime(TimeParam, Box<Question>),
}

/// An answer to a question.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Answer to [`Question::Overview`].
    Overview(Arc<Overview>),
    /// Answer to [`Question::Nodes`].
    Nodes(Arc<NodeList>),
    /// Answer to [`Question::Node`].
    Node(Arc<NodeDetail>),
    /// Answer to [`Question::Findings`] and [`Question::Closed`].
    Findings(Arc<FindingList>),
    /// Answer to [`Question::GpuTime`].
    GpuTime(Arc<GpuTime>),
    /// Answer to [`Question::Finding`].
    Finding(Arc<Explanation>),
    /// Answer to [`Question::Targets`].
    Targets(Arc<TargetList>),
    /// Answer to [`Question::Table`].
    Table(Arc<AnswerTable>),
    /// Answer to [`Question::Job`].
    Job(Arc<JobDetail>),
    /// Answer to [`Question::Fabric`].
    Fabric(Arc<FabricMatrix>),
    /// Answer to [`Question::History`].
    History(Arc<MetricHistory>),
    /// Answer to [`Question::Probe`].
    Probe(Arc<ProbeMatrix>),
    /// Answer to [`Question::Usage`].
    Usage(Arc<UsageReport>),
    /// Answer to [`Question::Alerts`].
    Alerts(Arc<AlertList>),
    /// Answer to [`Question::Coverage`].
    Coverage(Arc<TelemetryCoverage>),
    /// The question is refused, with the reason.
    Refused(Refusal),
}

impl Answer {
    /// The answer itself, where a refusal is an error.
    pub fn into_result(self) -> Result<Self, Refusal> {
        match self {
            Self::Refused(refusal) => Err(refusal),
            answer => Ok(answer),
        }
    }

    /// Decodes the answer to a question from its JSON.
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
            Question::Coverage => Self::Coverage(of(json)?),
            Question::AtTime(_, question) => return Self::from_json(question, json),
        })
    }
}

/// Why a question is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "refused")]
pub enum Refusal {
    /// No node has this name.
    #[error("no node is named {node}; `gaunt snapshot` or /api/gaunt/v1/nodes lists the names")]
    UnknownNode {
        /// The requested name.
        node: SanitizedText,
    },
    /// No job has this id.
    #[error(
        "no job {job} holds a GPU now; `gaunt snapshot --ask jobs` or /api/gaunt/v1/jobs lists the jobs"
    )]
    UnknownJob {
        /// The requested id.
        job: SanitizedText,
    },
    /// No finding has this id.
    #[error(
        "no open or closed finding {finding}; /api/gaunt/v1/findings and /api/gaunt/v1/closed list \
         the ids"
    )]
    UnknownFinding {
        /// The requested id.
        finding: SanitizedText,
    },
    /// A closed finding cannot be acknowledged.
    #[error("{finding} is closed; only open findings can be acknowledged")]
    ClosedFinding {
        /// Its id.
        finding: SanitizedText,
    },
    /// The finding is already acknowledged.
    #[error("{finding} is already acknowledged by {by}; withdraw that first")]
    AlreadyAcknowledged {
        /// Its id.
        finding: SanitizedText,
        /// Who acknowledged it.
        by: SanitizedText,
    },
    /// The finding does not depend on a baseline, so that no level can be accepted.
    #[error(
        "{finding} does not depend on a baseline, so no level can be accepted; acknowledge it \
         without --accept"
    )]
    NotAcceptable {
        /// Its id.
        finding: SanitizedText,
    },
    /// The finding is not acknowledged, so that nothing can be withdrawn.
    #[error("{finding} is not acknowledged")]
    NotAcknowledged {
        /// Its id.
        finding: SanitizedText,
    },
    /// Somebody acted on the finding, or it opened again, since the user looked at it.
    #[error(
        "{finding} was acknowledged, withdrawn or opened again meanwhile; look at it and repeat"
    )]
    ActedMeanwhile {
        /// Its id.
        finding: SanitizedText,
    },
    /// No token is configured: the aggregator is read-only.
    #[error(
        "this aggregator is read-only: it has no token or cannot read it; set serve.token_file in \
         its settings, or --token-file"
    )]
    WritingOff,
    /// The request has no token.
    #[error(
        "this action needs the aggregator's token: --token-file FILE or GAUNT_TOKEN with gaunt, \
         `Authorization: Bearer TOKEN` over HTTP"
    )]
    NoToken,
    /// The request has a wrong token.
    #[error("wrong token: none of the aggregator's; check --token-file or GAUNT_TOKEN")]
    WrongToken,
    /// The client is known, and may not do this.
    #[error(
        "{name} has the role {role}, and this needs {needed}; use another token, or change serve.tokens or \
         serve.trusted_proxy in the settings of the aggregator"
    )]
    RoleTooLow {
        /// Name of its token, or the user.
        name: SanitizedText,
        /// Its role.
        role: AccessRole,
        /// The role that the request needs.
        needed: AccessRole,
    },
    /// Unknown question.
    #[error("unknown question {ask}; known are {}", known_paths())]
    UnknownQuestion {
        /// The question as received.
        ask: SanitizedText,
    },
    /// Invalid parameter.
    #[error("parameter {parameter}: {why}")]
    BadParameter {
        /// Name of the parameter.
        parameter: SanitizedText,
        /// The error, and valid values.
        why: SanitizedText,
    },
    /// Invalid filter.
    #[error("invalid filter: {error}")]
    BadFilter {
        /// Position and reason.
        error: FilterError,
    },
    /// No data is retained for this time.
    #[error("no data for that time; history starts {}", history_start(*oldest, *seconds))]
    NotKept {
        /// Age of the oldest retained data.
        seconds: u64,
        /// Time of the oldest retained data.
        #[serde(default)]
        oldest: Option<UnixMs>,
    },
    /// The question covers more than one answer may.
    #[error("{devices} devices are too many for one history; narrow the filter to {limit}")]
    TooMany {
        /// Number of devices it covers.
        devices: u32,
        /// The limit.
        limit: u32,
    },
    /// gaunt has an error that this question met.
    #[error(
        "gaunt failed to answer this: {error}; report it with the line of the aggregator's log that says where"
    )]
    Failed {
        /// Its message.
        error: SanitizedText,
    },
}

impl Refusal {
    /// Whether authorization failed.
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            Self::WritingOff | Self::NoToken | Self::WrongToken | Self::RoleTooLow { .. }
        )
    }

    /// Whether the question can never be answered, whatever the state of the fleet.
    pub fn is_invalid(&self) -> bool {
        !self.is_not_found() && !self.is_conflict() && !self.is_denied()
    }

    /// Whether the requested object does not exist now.
    fn is_not_found(&self) -> bool {
        matches!(
            self,
            Self::UnknownNode { .. }
                | Self::UnknownJob { .. }
                | Self::UnknownFinding { .. }
                | Self::NotKept { .. }
        )
    }

    /// Whether the object exists but is not in the state that the action requires.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::ClosedFinding { .. }
                | Self::AlreadyAcknowledged { .. }
                | Self::NotAcceptable { .. }
                | Self::NotAcknowledged { .. }
                | Self::ActedMeanwhile { .. }
        )
    }
}

impl From<FilterError> for Refusal {
    fn from(error: FilterError) -> Self {
        Self::BadFilter { error }
    }
}

/// Describes where history starts; older aggregators report only its age.
fn history_start(oldest: Option<UnixMs>, seconds: u64) -> String {
    match oldest {
        Some(oldest) => format!("at {}", format_time_of_day(oldest)),
        None => format!("{seconds} s ago"),
    }
}

fn known_paths() -> String {
    PATHS.map(|(path, ..)| path).join(", ")
}
