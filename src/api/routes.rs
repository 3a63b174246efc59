//! Routes: questions as URL paths, the same in the API, in a stream, on the command line and between gaunt processes.

use std::time::Duration;

use gaunt_schema::SanitizedText;

use super::{
    Filter, FilterError, HistoryAggregation, HistoryQuery, Question, Refusal, Subject, TimeParam,
    history_answer::{LONGEST_SPAN, MAX_POINTS, USUAL_POINTS},
    usage_report,
};

/// Parameters that sort and page rows; they are appended to the filter in this order.
const CLAUSES: [&str; 4] = ["sort", "limit", "offset", "columns"];

/// Every path below the API base, with placeholders in braces, its parameters, and its answer in a few words.
pub const PATHS: [(&str, &[&str], &str); 19] = [
    ("overview", &["at"], "Summary of the whole fleet, with the heat map."),
    ("nodes", &["filter", "sort", "limit", "offset", "at"], "Nodes, one line each, worst first."),
    ("nodes/{node}", &["at"], "One node with its devices, values and recent history."),
    ("gpus", &["filter", "sort", "limit", "offset", "columns", "at"], "GPUs as columns."),
    ("jobs", &["filter", "sort", "limit", "offset", "columns", "at"], "Jobs as columns."),
    ("jobs/{job}", &["at"], "One job with all its GPUs."),
    ("ports", &["filter", "sort", "limit", "offset", "columns", "at"], "RDMA ports as columns."),
    ("fabric", &["filter", "at"], "Leaf × rail matrix of the ports."),
    ("findings", &["filter", "sort", "limit", "offset", "at"], "Open findings, worst first."),
    ("findings/{finding}", &["at"], "One finding, open or closed, with its explanation."),
    (
        "closed",
        &["filter", "sort", "limit", "offset"],
        "Closed findings, newest first: of the last day; with a state folder of 90 days, 20,000 at most.",
    ),
    ("gpu_time", &[], "GPU states of each job, and lost time by job and cause."),
    (
        "targets",
        &["filter", "sort", "limit", "offset"],
        "Targets and the results of their last scrapes.",
    ),
    (
        "table/{subject}",
        &["filter", "sort", "limit", "offset", "columns", "at"],
        "Rows of any subject as columns.",
    ),
    ("probe", &[], "Measurements of probes between nodes, and suspects."),
    (
        "history",
        &["metric", "subject", "filter", "together", "points", "span", "at"],
        "One metric over time.",
    ),
    ("usage", &["last"], "GPU time and energy by job, GPU model, state and cause."),
    ("alerts", &[], "Alertmanager's state of findings, and their silences."),
    (
        "coverage",
        &[],
        "What is not known: unjoined nodes, unknown topology, missing metrics, renewal intervals.",
    ),
];

impl Question {
    /// Parses a path below the API base and its parameters, both unescaped.
    pub fn parse_path(path: &str, parameters: &[(String, String)]) -> Result<Self, Refusal> {
        // A name may contain a slash: only the first one separates.
        let (head, last) = path.split_once('/').map_or((path, None), |(h, l)| (h, Some(l)));
        let unknown = || Refusal::UnknownQuestion { ask: SanitizedText::new(path) };
        let (route, allowed, _) = PATHS
            .iter()
            .find(|(route, ..)| match route.split_once('/') {
                Some((first, _)) => first == head && last.is_some_and(|last| !last.is_empty()),
                None => *route == head && last.is_none(),
            })
            .ok_or_else(unknown)?;
        let query = QueryParameters::new(parameters, route, allowed)?;
        let last = last.unwrap_or_default();
        let question = match *route {
            "overview" => Self::Overview,
            "nodes" => query.parse_list(Subject::Nodes, Self::Nodes)?,
            "nodes/{node}" => Self::Node(SanitizedText::new(last)),
            "gpus" => Self::Table(query.parse_filter(Subject::Gpus)?),
            "jobs" => Self::Table(query.parse_filter(Subject::Jobs)?),
            "jobs/{job}" => Self::Job(SanitizedText::new(last)),
            "ports" => Self::Table(query.parse_filter(Subject::Ports)?),
            "fabric" => Self::Fabric(query.parse_filter(Subject::Ports)?),
            "findings" => query.parse_list(Subject::Findings, Self::Findings)?,
            "findings/{finding}" => Self::Finding(last.to_owned()),
            "gpu_time" => Self::GpuTime,
            "closed" => query.parse_list(Subject::Closed, Self::Closed)?,
            "targets" => query.parse_list(Subject::Targets, Self::Targets)?,
            "table/{subject}" => {
                Self::Table(query.parse_filter(Subject::parse(last).ok_or_else(unknown)?)?)
            }
            "probe" => Self::Probe,
            "history" => Self::History(query.parse_history()?),
            "usage" => Self::Usage(query.parse_usage_span()?),
            "alerts" => Self::Alerts,
            "coverage" => Self::Coverage,
            _ => return Err(unknown()),
        };
        Ok(match query.parse_time()? {
            Some(when) => Self::AtTime(when, Box::new(question)),
            None => question,
        })
    }

    /// Parses a question as written on the command line: `gpus`, `nodes/gpu003`, `history?metric=power`.
    pub fn parse_line(line: &str, more: &[(String, String)]) -> Result<Self, Refusal> {
        let (path, query) = line.split_once('?').unwrap_or((line, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let mut parameters: Vec<(String, String)> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        parameters.extend_from_slice(more);
        Self::parse_path(path, &parameters)
    }

    /// The path segments below the API base, and the parameters; [`Self::parse_path`] parses them back.
    pub fn to_path(&self) -> (Vec<&str>, Vec<(&'static str, String)>) {
        match self {
            Self::Overview => (vec!["overview"], Vec::new()),
            Self::Nodes => (vec!["nodes"], Vec::new()),
            Self::Node(name) => (vec!["nodes", name], Vec::new()),
            Self::Job(job) => (vec!["jobs", job], Vec::new()),
            Self::Findings => (vec!["findings"], Vec::new()),
            Self::Finding(id) => (vec!["findings", id], Vec::new()),
            Self::GpuTime => (vec!["gpu_time"], Vec::new()),
            Self::Closed => (vec!["closed"], Vec::new()),
            Self::Targets => (vec!["targets"], Vec::new()),
            Self::Probe => (vec!["probe"], Vec::new()),
            Self::List(filter) => (vec![filter.subject().as_str()], filter_parameter(filter)),
            Self::Fabric(filter) => (vec!["fabric"], filter_parameter(filter)),
            Self::Table(filter) => {
                (vec!["table", filter.subject().as_str()], filter_parameter(filter))
            }
            Self::Usage(span) => (vec!["usage"], vec![("last", format!("{}s", span.as_secs()))]),
            Self::Alerts => (vec!["alerts"], Vec::new()),
            Self::Coverage => (vec!["coverage"], Vec::new()),
            Self::History(ask) => {
                let mut parameters = vec![
                    ("metric", ask.metric.to_string()),
                    ("subject", ask.of.subject().as_str().to_owned()),
                    ("together", ask.together.as_str().to_owned()),
                    ("points", ask.points.to_string()),
                ];
                parameters.extend(ask.span.map(|span| ("span", format!("{}s", span.as_secs()))));
                parameters.extend(filter_parameter(&ask.of));
                (vec!["history"], parameters)
            }
            Self::AtTime(when, question) => {
                let (segments, mut parameters) = question.to_path();
                parameters.push(("at", when.to_string()));
                (segments, parameters)
            }
        }
    }
}

fn filter_parameter(filter: &Filter) -> Vec<(&'static str, String)> {
    if filter.is_all() { Vec::new() } else { vec![("filter", filter.source_text().to_owned())] }
}

/// The parameters of one question.
struct QueryParameters<'a>(&'a [(String, String)]);

impl<'a> QueryParameters<'a> {
    /// Checks that every parameter is known here and given once.
    fn new(
        parameters: &'a [(String, String)],
        path: &str,
        allowed: &[&str],
    ) -> Result<Self, Refusal> {
        for (at, (name, _)) in parameters.iter().enumerate() {
            let is_duplicate = parameters[..at].iter().any(|(earlier, _)| earlier == name);
            if is_duplicate || !allowed.contains(&name.as_str()) {
                let how = if is_duplicate { "given twice" } else { "unknown" };
                let accepted =
                    if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                return Err(Refusal::BadParameter {
                    parameter: SanitizedText::new(name),
                    why: SanitizedText::new(&format!("{how}; {path} accepts {accepted}")),
                });
            }
        }
        Ok(Self(parameters))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The past time of the question, if it is not about now.
    fn parse_time(&self) -> Result<Option<TimeParam>, Refusal> {
        let Some(text) = self.get("at") else { return Ok(None) };
        let why = format!("invalid time {text}; write -20m, or Unix time in milliseconds");
        let bad =
            || Refusal::BadParameter { parameter: "at".into(), why: SanitizedText::new(&why) };
        TimeParam::parse(text).map(Some).ok_or_else(bad)
    }

    /// The filter with the clauses that are given as parameters.
    fn parse_filter(&self, subject: Subject) -> Result<Filter, FilterError> {
        let mut text = self.get("filter").unwrap_or("").trim().to_owned();
        for clause in CLAUSES {
            if let Some(value) = self.get(clause) {
                text = format!("{text} {clause} {value}");
            }
        }
        Filter::parse(subject, &text)
    }

    /// The filtered list, or the whole one.
    fn parse_list(&self, subject: Subject, whole: Question) -> Result<Question, Refusal> {
        let filter = self.parse_filter(subject)?;
        if filter.has_columns() {
            let why = format!("unknown; table/{} has columns", subject.as_str());
            return Err(Refusal::BadParameter {
                parameter: "columns".into(),
                why: SanitizedText::new(&why),
            });
        }
        Ok(if filter.is_all() { whole } else { Question::List(filter) })
    }

    /// The period of a report.
    fn parse_usage_span(&self) -> Result<Duration, Refusal> {
        let Some(text) = self.get("last") else { return Ok(usage_report::USUAL_SPAN) };
        let why = format!("invalid duration {text}; write 15m, 90s or 1h");
        let bad =
            || Refusal::BadParameter { parameter: "last".into(), why: SanitizedText::new(&why) };
        usage_report::parse_span(text).ok_or_else(bad)
    }

    fn parse_history(&self) -> Result<HistoryQuery, Refusal> {
        let bad = |parameter: &str, why: String| Refusal::BadParameter {
            parameter: SanitizedText::new(parameter),
            why: SanitizedText::new(&why),
        };
        let metric = self
            .get("metric")
            .ok_or_else(|| bad("metric", "missing; name a field, such as power".to_owned()))?;
        let subject = match self.get("subject") {
            None => Subject::Gpus,
            Some(word) => Subject::parse(word)
                .filter(|s| matches!(s, Subject::Gpus | Subject::Nodes | Subject::Ports))
                .ok_or_else(|| {
                    bad("subject", format!("invalid value {word}; write gpus, nodes or ports"))
                })?,
        };
        let together = match self.get("together") {
            None => HistoryAggregation::Mean,
            Some(word) => HistoryAggregation::parse(word).ok_or_else(|| {
                bad("together", format!("invalid value {word}; write mean, sum, min or max"))
            })?,
        };
        let points = match self.get("points") {
            None => USUAL_POINTS,
            Some(word) => {
                word.parse().ok().filter(|points| (1..=MAX_POINTS).contains(points)).ok_or_else(
                    || {
                        bad(
                            "points",
                            format!("invalid value {word}; write a number from 1 to {MAX_POINTS}"),
                        )
                    },
                )?
            }
        };
        let span = match self.get("span") {
            None => None,
            Some(word) => {
                let span = usage_report::parse_span(word).filter(|span| *span <= LONGEST_SPAN);
                let why = || format!("invalid duration {word}; write 6h or 7d, up to 90d");
                Some(span.ok_or_else(|| bad("span", why()))?)
            }
        };
        Ok(HistoryQuery {
            metric: SanitizedText::new(metric),
            of: self.parse_filter(subject)?,
            together,
            points,
            span,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_question(line: &str) -> Result<Question, Refusal> {
        Question::parse_line(line, &[])
    }

    #[test]
    fn question_becomes_a_path_and_back() {
        for line in [
            "overview",
            "nodes",
            "nodes?filter=lost>0&limit=5",
            "nodes/gpu 1/a",
            "gpus?filter=job=8812 and sm_active<0.3&sort=power desc&limit=20&columns=node,gpu",
            "jobs?sort=lost desc",
            "jobs/8812",
            "ports?filter=rail=3",
            "fabric?filter=rail=3",
            "findings?filter=severity=critical",
            "findings/port_down/gpu003/mlx5_1/1",
            "closed",
            "gpu_time",
            "closed?filter=kind=port_down&limit=3",
            "targets",
            "table/findings",
            "overview?at=-20m",
            "nodes/gpu003?at=1700000000000",
            "jobs?sort=lost desc&at=-90s",
            "history?metric=power&filter=node=gpu003 and gpu=5&points=60",
            "history?metric=lost&span=7d&at=-1h",
            "usage?last=900s",
            "alerts",
            "coverage",
        ] {
            let question = parse_question(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let (segments, parameters) = question.to_path();
            let owned: Vec<_> =
                parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(
                Question::parse_path(&segments.join("/"), &owned).unwrap(),
                question,
                "{line}"
            );
        }
    }

    #[test]
    fn unknown_paths_and_parameters_are_refused_with_the_known_ones() {
        for (line, said) in [
            ("nodez", "unknown question nodez; known are overview, nodes, nodes/{node}, gpus, "),
            ("table/wibble", "unknown question table/wibble; "),
            ("targets?at=-1m", "parameter at: unknown; targets accepts filter, sort, "),
            ("overview?at=yesterday", "parameter at: invalid time yesterday; write -20m, or"),
            ("overview?limit=3", "parameter limit: unknown; overview accepts at"),
            ("gpus?limit=3&limit=4", "parameter limit: given twice; gpus accepts filter, sort, "),
            ("nodes?columns=node", "parameter columns: unknown; nodes accepts filter, "),
            ("nodes?filter=columns node", "parameter columns: unknown; table/nodes has columns"),
            ("history", "parameter metric: missing; name a field, such as power"),
            ("usage?last=15", "parameter last: invalid duration 15; write 15m, 90s or 1h"),
            (
                "history?metric=power&points=0",
                "parameter points: invalid value 0; write a number from 1 to 2000",
            ),
            (
                "history?metric=power&span=91d",
                "parameter span: invalid duration 91d; write 6h or 7d",
            ),
            (
                "history?metric=power&subject=jobs",
                "parameter subject: invalid value jobs; write gpus, ",
            ),
            ("gpus?filter=powr>3", "invalid filter: column 1: gpus have no field powr; did"),
        ] {
            let error = parse_question(line).unwrap_err().to_string();
            assert!(error.starts_with(said), "{line}: {error}");
        }
    }
}
