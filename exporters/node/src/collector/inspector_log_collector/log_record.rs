//! One line of a log of NCCL's or RCCL's inspector: formats v4.0 to v4.3.
//!
//! Until v4.2 every operation has its own header. Since v4.3 a line with `dump_stats` begins a dump, and its header holds
//! for the operations that follow; `dump_stats` states how many they are.

use serde::Deserialize;

/// The formats that are read; a later major version may have other units.
const VERSIONS: &str = "v4.";

/// Times that are measured on the processor when the operation is launched say nothing about its execution.
const LAUNCH_TIMES: &str = "collective_cpu";

/// The communicator and the rank in it.
#[derive(Debug, Deserialize)]
pub(super) struct RecordHeader {
    /// The hash of the communicator, the same for all of its ranks.
    pub(super) id: String,
    /// Its name, since NCCL 2.28.
    #[serde(default)]
    pub(super) comm_name: Option<String>,
    pub(super) rank: u32,
    pub(super) n_ranks: u32,
    pub(super) nnodes: u32,
}

/// The process.
#[derive(Debug, Deserialize)]
pub(super) struct RecordMetadata {
    pub(super) inspector_output_format_version: String,
    pub(super) pid: u32,
}

/// What an operation took. Point-to-point operations have the same fields under other names.
#[derive(Debug, Deserialize)]
pub(super) struct OperationTimes {
    #[serde(rename = "coll", alias = "p2p")]
    pub(super) operation: String,
    /// Since v4.2.
    #[serde(default, rename = "coll_algo")]
    pub(super) algorithm: Option<String>,
    #[serde(default, rename = "coll_proto")]
    pub(super) protocol: Option<String>,
    #[serde(rename = "coll_msg_size_bytes", alias = "p2p_msg_size_bytes")]
    pub(super) message_bytes: u64,
    #[serde(rename = "coll_exec_time_us", alias = "p2p_exec_time_us")]
    pub(super) microseconds: u64,
    #[serde(default, rename = "coll_timing_source", alias = "p2p_timing_source")]
    timing_source: Option<String>,
    /// Gigabytes (1e9) a second.
    #[serde(rename = "coll_algobw_gbs", alias = "p2p_algobw_gbs")]
    pub(super) algorithm_gigabytes: f64,
    #[serde(rename = "coll_busbw_gbs", alias = "p2p_busbw_gbs")]
    pub(super) bus_gigabytes: f64,
}

/// How many operations follow, and how many the inspector lost before.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DumpStats {
    coll_records: u64,
    p2p_records: u64,
    proxy_records: u64,
    coll_dropped_since_last_dump: u64,
}

#[derive(Debug, Deserialize)]
struct LogLine {
    header: Option<RecordHeader>,
    metadata: Option<RecordMetadata>,
    dump_stats: Option<DumpStats>,
    #[serde(alias = "p2p_perf")]
    coll_perf: Option<OperationTimes>,
}

/// One operation of one rank.
#[derive(Debug)]
pub(super) struct LoggedOperation<'a> {
    pub(super) header: &'a RecordHeader,
    pub(super) metadata: &'a RecordMetadata,
    pub(super) times: OperationTimes,
}

/// Why a line is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogLineError {
    /// It is not a record of the inspector.
    #[error("not a record of NCCL's inspector: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Another format.
    #[error(
        "format {0:?} is not known (v4.0 to v4.3 are); update gaunt-node, or set NCCL_INSPECTOR_PROM_DUMP=1"
    )]
    Version(String),
    /// Records of a dump are missing, or there are more than it announced.
    #[error("the records of a dump do not agree with the number in dump_stats")]
    Count,
}

/// What earlier lines of a file say about later ones. One for each file: a context never holds for another one.
#[derive(Debug, Default)]
pub(super) struct LogContext {
    /// Of the dump, or of the last line that had its own.
    header: Option<(RecordHeader, RecordMetadata)>,
    /// The lines of the dump that are to come.
    remaining: u64,
    /// Operations that the inspector lost, since the file is read.
    pub(super) dropped: u64,
}

impl LogContext {
    /// Decodes a line; none if it has no operation, or one whose dump began before the file was read.
    pub(super) fn decode_line(
        &mut self,
        line: &[u8],
    ) -> Result<Option<LoggedOperation<'_>>, LogLineError> {
        let LogLine { header, metadata, dump_stats, coll_perf } = serde_json::from_slice(line)?;
        if let Some(metadata) = &metadata
            && !metadata.inspector_output_format_version.starts_with(VERSIONS)
        {
            *self = Self::default();
            return Err(LogLineError::Version(metadata.inspector_output_format_version.clone()));
        }
        let own = header.zip(metadata);
        if let Some(stats) = dump_stats {
            let is_incomplete = std::mem::take(&mut self.remaining) > 0;
            if own.as_ref().is_some_and(|(_, metadata)| metadata.has_shared_header()) {
                self.remaining = stats.coll_records + stats.p2p_records + stats.proxy_records;
            }
            self.dropped += stats.coll_dropped_since_last_dump;
            self.header = own;
            return if is_incomplete { Err(LogLineError::Count) } else { Ok(None) };
        }
        if own.is_some() {
            (self.header, self.remaining) = (own, 0);
        } else if self.header.is_some() {
            let Some(remaining) = self.remaining.checked_sub(1) else {
                self.header = None;
                return Err(LogLineError::Count);
            };
            self.remaining = remaining;
        }
        let (Some((header, metadata)), Some(times)) = (&self.header, coll_perf) else {
            return Ok(None);
        };
        if times.timing_source.as_deref() == Some(LAUNCH_TIMES) {
            return Ok(None);
        }
        Ok(Some(LoggedOperation { header, metadata, times }))
    }
}

impl RecordMetadata {
    /// Whether operations of this format have no header of their own.
    fn has_shared_header(&self) -> bool {
        let minor = self.inspector_output_format_version.strip_prefix(VERSIONS);
        minor.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor >= 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        r#""header":{"id":"0x7f8c","comm_name":"dp","rank":2,"n_ranks":8,"nnodes":4}"#;

    fn metadata(version: &str) -> String {
        format!(
            r#""metadata":{{"inspector_output_format_version":"{version}","git_rev":"","rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":1748030377748202,"hostname":"ash","pid":4711}}"#
        )
    }

    const OPERATION: &str = r#""coll_perf":{"coll":"AllReduce","coll_algo":"RING","coll_proto":"LL","coll_sn":7,"coll_msg_size_bytes":4194304,"coll_exec_time_us":5000,"coll_timing_source":"kernel_gpu","coll_algobw_gbs":0.8,"coll_busbw_gbs":1.5}"#;

    /// The operation of a line, as `communicator rank pid operation microseconds`.
    fn decode(context: &mut LogContext, line: &str) -> Result<Option<String>, String> {
        let operation = context.decode_line(line.as_bytes()).map_err(|error| error.to_string())?;
        Ok(operation.map(|it| {
            let (header, times) = (it.header, &it.times);
            format!(
                "{} {} {} {} {}",
                header.id, header.rank, it.metadata.pid, times.operation, times.microseconds
            )
        }))
    }

    #[test]
    fn records_with_their_own_header_are_read() {
        let mut context = LogContext::default();
        let line = format!("{{{HEADER},{},{OPERATION}}}", metadata("v4.2"));
        assert_eq!(decode(&mut context, &line).unwrap().unwrap(), "0x7f8c 2 4711 AllReduce 5000");
        // RCCL: no name, no algorithm, no source of the times.
        let line = r#"{"header":{"id":"0xe62d","rank":4,"n_ranks":8,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"profiler_plugin","dump_timestamp_us":1,"hostname":"birch","pid":9},"coll_perf":{"coll":"ReduceScatter","coll_sn":1,"coll_msg_size_bytes":1,"coll_exec_time_us":61974,"coll_algobw_gbs":277.2,"coll_busbw_gbs":485.1}}"#;
        assert_eq!(decode(&mut context, line).unwrap().unwrap(), "0xe62d 4 9 ReduceScatter 61974");
        let sent = r#""p2p_perf":{"p2p":"Send","p2p_sn":1,"p2p_peer":3,"p2p_msg_size_bytes":1,"p2p_exec_time_us":30,"p2p_timing_source":"kernel_gpu","p2p_algobw_gbs":1.0,"p2p_busbw_gbs":1.0}"#;
        let line = format!("{{{HEADER},{},{sent}}}", metadata("v4.1"));
        assert_eq!(decode(&mut context, &line).unwrap().unwrap(), "0x7f8c 2 4711 Send 30");
        let launched = OPERATION.replace("kernel_gpu", "collective_cpu");
        let line = format!("{{{HEADER},{},{launched}}}", metadata("v4.2"));
        assert_eq!(decode(&mut context, &line), Ok(None));
    }

    #[test]
    fn records_of_a_dump_have_its_header() {
        let mut context = LogContext::default();
        let operation = format!("{{{OPERATION}}}");
        assert_eq!(decode(&mut context, &operation), Ok(None), "its dump began before");
        let dump = |records: u32| {
            format!(
                r#"{{{HEADER},{},"dump_stats":{{"coll_records":{records},"coll_dropped_total":9,"coll_dropped_since_last_dump":4,"p2p_records":0,"proxy_records":1}}}}"#,
                metadata("v4.3")
            )
        };
        assert_eq!(decode(&mut context, &dump(1)), Ok(None));
        assert_eq!(decode(&mut context, r#"{"proxy_trace":{"record_type":"proxy_op"}}"#), Ok(None));
        let expected = "0x7f8c 2 4711 AllReduce 5000";
        assert_eq!(decode(&mut context, &operation).unwrap().unwrap(), expected);
        let count = "the records of a dump do not agree with the number in dump_stats";
        assert_eq!(decode(&mut context, &operation).unwrap_err(), count, "one more than announced");
        assert_eq!(decode(&mut context, &operation), Ok(None));
        assert_eq!(decode(&mut context, &dump(2)), Ok(None));
        assert_eq!(
            decode(&mut context, &dump(1)).unwrap_err(),
            count,
            "the last one is incomplete"
        );
        assert_eq!(decode(&mut context, &operation).unwrap().unwrap(), expected);
        assert_eq!(context.dropped, 12);
    }

    #[test]
    fn unknown_formats_and_other_lines_are_errors() {
        let mut context = LogContext::default();
        let line = format!("{{{HEADER},{},{OPERATION}}}", metadata("v5.0"));
        let error = decode(&mut context, &line).unwrap_err();
        assert!(error.starts_with("format \"v5.0\" is not known"), "{error}");
        let error = decode(&mut context, "NCCL INFO ...").unwrap_err();
        assert!(error.starts_with("not a record of NCCL's inspector"), "{error}");
    }
}
