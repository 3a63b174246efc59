//! Output formats of the commands.

use clap::ValueEnum;

/// Output format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArgument {
    /// Plain columns.
    Text,
    /// One JSON object.
    Json,
}

/// Output format of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SnapshotFormatArgument {
    /// Plain columns.
    Text,
    /// One JSON object; for one question (--ask) {"rows": [{"node": ...}]}.
    Json,
    /// Comma-separated values of one question (--ask).
    Csv,
    /// The JSON object of the API for one question (--ask): one array per column.
    Columns,
}

/// Output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormatArgument {
    /// Plain columns.
    Text,
    /// One JSON object.
    Json,
    /// Comma-separated values.
    Csv,
    /// One page of HTML without references to anything else.
    Html,
}

/// Output format of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExplainFormatArgument {
    /// Plain columns.
    Text,
    /// One JSON object.
    Json,
    /// Markdown, for a ticket or a chat.
    Markdown,
    /// One page of HTML without references to anything else.
    Html,
}
