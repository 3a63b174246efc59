//! The sentences of coverage checks: what is missing, what that means, and the next step.

use gaunt_api::CoverageKind;

/// The next step for two nodes that may be one machine.
const SAME_NAME_NEXT: &str =
    "Give both targets of a machine the same node name (NODE=ADDRESS, or the label `node`).";

/// The next step for nodes without host metrics.
const HOST_METRICS_NEXT: &str = "Run node_exporter or gaunt-node there, or give both targets of a \
    machine the same node name (NODE=ADDRESS, or the label `node`).";

/// The next step for other versions.
pub(super) const VERSIONS_NEXT: &str =
    "Update gaunt first, then gaunt-node; CHANGELOG.md has what speaks with what.";

/// The next step without any target.
pub(super) const NO_TARGETS_NEXT: &str =
    "Name targets with --targets, --file-sd or `gather.targets` in the settings.";

/// The next step while targets were not tried.
pub(super) const UNTRIED_NEXT: &str = "Repeat this after a scrape period.";

/// Returns how many targets were not tried.
pub(super) fn describe_untried(count: u32) -> String {
    let verb = if count == 1 { "is" } else { "are" };
    format!("{} {verb} not tried yet", count_things(count, ("target", "targets"), ""))
}

/// The next step without any GPU.
pub(super) const NO_GPUS_NEXT: &str = "Add targets that export GPU metrics: dcgm-exporter or \
    gaunt-node. Where gaunt-node runs, `gaunt-node doctor` says why it has none.";

/// Returns the result of a check as a sentence, and the next step if something is missing.
pub(super) fn describe_check(kind: CoverageKind, known: u32, total: u32) -> (String, &'static str) {
    let texts = CheckTexts::of(kind);
    let missing = total - known;
    let verb_of = |count, (one, several)| if count == 1 { one } else { several };
    let summary = if missing > 0 {
        let things = count_things(total, texts.things, "");
        format!("{missing} of {things} {}: {}", verb_of(missing, texts.lacks), texts.meaning)
    } else if kind == CoverageKind::JoinedNodes {
        "no node with GPUs has its host metrics on another node".to_owned()
    } else {
        let things = count_things(total, texts.things, "all");
        format!("{things} {}", verb_of(total, texts.complete))
    };
    (summary, texts.next)
}

/// The words of one check.
struct CheckTexts {
    /// What is counted: one, and several.
    things: (&'static str, &'static str),
    /// What holds of one and of several that have it.
    complete: (&'static str, &'static str),
    /// What holds of one and of several that lack it.
    lacks: (&'static str, &'static str),
    /// What gaunt cannot tell then.
    meaning: &'static str,
    /// The next step.
    next: &'static str,
}

impl CheckTexts {
    const fn of(kind: CoverageKind) -> Self {
        match kind {
            CoverageKind::Targets
            | CoverageKind::HostMetrics
            | CoverageKind::GpuMetrics
            | CoverageKind::JoinedNodes
            | CoverageKind::ExporterFields
            | CoverageKind::PressureMetrics => Self::of_nodes(kind),
            CoverageKind::Clocks | CoverageKind::Versions | CoverageKind::Certificates => {
                Self::of_exporters(kind)
            }
            CoverageKind::Sources
            | CoverageKind::SiteFiles
            | CoverageKind::Alertmanagers
            | CoverageKind::Peers
            | CoverageKind::Store => Self::of_servers(kind),
            _ => Self::of_devices(kind),
        }
    }

    const fn of_exporters(kind: CoverageKind) -> Self {
        match kind {
            CoverageKind::Clocks => Self {
                things: ("clock of a node", "clocks of nodes"),
                complete: ("is right", "are right"),
                lacks: ("is wrong", "are wrong"),
                meaning: "times in its logs and in gaunt differ, and certificates may count as invalid",
                next: "Run `chronyc tracking` or `timedatectl` there, and check NTP; also on this host, if all differ alike.",
            },
            CoverageKind::Versions => Self {
                things: ("gaunt-node", "gaunt-nodes"),
                complete: ("has gaunt's version", "have gaunt's version"),
                lacks: ("has another version than gaunt", "have another version than gaunt"),
                meaning: "it is read, and may lack metrics",
                next: VERSIONS_NEXT,
            },
            _ => Self {
                things: ("certificate", "certificates"),
                complete: (
                    "is valid for longer than `judge.certificate_seconds`",
                    "are valid for longer than `judge.certificate_seconds`",
                ),
                lacks: ("expires soon", "expire soon"),
                meaning: "then clients that check it cannot connect",
                next: "Renew it, with `gaunt certs --renew` where gaunt's CA signed it; it is read again without a restart.",
            },
        }
    }

    const fn of_servers(kind: CoverageKind) -> Self {
        match kind {
            CoverageKind::Sources => Self {
                things: ("source of targets", "sources of targets"),
                complete: ("is read", "are read"),
                lacks: ("is not read", "are not read"),
                meaning: "its last list stays in use",
                next: "Check [gather] and the log.",
            },
            CoverageKind::SiteFiles => Self {
                things: ("file of topology or jobs", "files of topology and jobs"),
                complete: ("is read", "are read"),
                lacks: ("has an error", "have errors"),
                meaning: "its last content stays in use, or its faulty part is skipped",
                next: "Run `gaunt check-config`.",
            },
            CoverageKind::Alertmanagers => Self {
                things: ("Alertmanager", "Alertmanagers"),
                complete: ("takes alerts", "take alerts"),
                lacks: ("takes no alerts", "take no alerts"),
                meaning: "findings notify nobody there",
                next: "Check [alertmanager] and the log.",
            },
            CoverageKind::Peers => Self {
                things: ("other aggregator", "other aggregators"),
                complete: ("answers", "answer"),
                lacks: ("does not answer", "do not answer"),
                meaning: "acknowledgements are passed on when it does",
                next: "Check serve.peers and the log.",
            },
            _ => Self {
                things: ("store", "stores"),
                complete: ("accepts verdicts", "accept verdicts"),
                lacks: ("does not accept verdicts", "do not accept verdicts"),
                meaning: "what is not refused waits in the backlog",
                next: "Check [store] and the log.",
            },
        }
    }

    const fn of_nodes(kind: CoverageKind) -> Self {
        let nodes = ("node with GPUs", "nodes with GPUs");
        match kind {
            CoverageKind::Targets => Self {
                things: ("target", "targets"),
                complete: ("is read", "are read"),
                lacks: ("is not read", "are not read"),
                meaning: "last values are stale or unknown",
                next: "Run `gaunt snapshot --ask targets`: the column MESSAGE has the reason.",
            },
            CoverageKind::ExporterFields => Self {
                things: ("page of dcgm-exporter", "pages of dcgm-exporter"),
                complete: ("is understood", "are understood"),
                lacks: (
                    "has fields that are not understood",
                    "have fields that are not understood",
                ),
                meaning: "gaunt does not use them, or the exporter is newer than gaunt",
                next: "Look for fields that you know in the list: if they have new names there, update gaunt. A field whose unit is unknown is read beside one in bytes, such as DCGM_FI_DEV_FB_USED_BYTES, and where a value exceeds 1.",
            },
            CoverageKind::GpuMetrics => Self {
                things: ("node with host metrics", "nodes with host metrics"),
                complete: ("has GPUs", "have GPUs"),
                lacks: ("has no GPU metrics", "have no GPU metrics"),
                meaning: "GPUs on them, if any, are not watched",
                next: "Run dcgm-exporter or gaunt-node on those that have GPUs.",
            },
            CoverageKind::JoinedNodes => Self {
                things: nodes,
                complete: ("", ""),
                lacks: (
                    "may have its host metrics on another node",
                    "may have their host metrics on other nodes",
                ),
                meaning: "name or address match, but not clearly enough to join them",
                next: SAME_NAME_NEXT,
            },
            CoverageKind::PressureMetrics => Self {
                things: ("node with GPUs and host metrics", "nodes with GPUs and host metrics"),
                complete: ("has PSI metrics", "have PSI metrics"),
                lacks: ("exports no PSI metrics", "export no PSI metrics"),
                meaning: "cannot tell IO wait from CPU contention",
                next: "Boot with the kernel option psi=1, and enable node_exporter's collector `pressure`.",
            },
            _ => Self {
                things: nodes,
                complete: ("has host metrics", "have host metrics"),
                lacks: ("has no host metrics", "have no host metrics"),
                meaning: "CPU, memory and IO of the host are unknown",
                next: HOST_METRICS_NEXT,
            },
        }
    }

    const fn of_devices(kind: CoverageKind) -> Self {
        let ports = ("active RDMA port", "active RDMA ports");
        match kind {
            CoverageKind::ProfilingCounters => Self {
                things: ("GPU", "GPUs"),
                complete: ("has profiling counters", "have profiling counters"),
                lacks: ("has no profiling counters", "have no profiling counters"),
                meaning: "tensor and SM activity are estimated from power",
                next: "Export DCGM_FI_PROF_SM_ACTIVE and DCGM_FI_PROF_PIPE_TENSOR_ACTIVE from dcgm-exporter, or run gaunt-node.",
            },
            CoverageKind::PortMetrics => Self {
                things: ("node with GPUs", "nodes with GPUs"),
                complete: ("has metrics of RDMA ports", "have metrics of RDMA ports"),
                lacks: ("has no metrics of RDMA ports", "have no metrics of RDMA ports"),
                meaning: "the network there is not checked",
                next: "Run gaunt-node, rdma_exporter, or node_exporter with its collector `infiniband` there.",
            },
            CoverageKind::Rails => Self {
                things: ports,
                complete: ("has a known rail", "have a known rail"),
                lacks: ("has no known rail", "have no known rail"),
                meaning: "ports with equal device numbers count as one rail",
                next: "Add a topology file to `topology.files` in the settings, like config/topology.toml or the output of ibnetdiscover.",
            },
            CoverageKind::Leaves => Self {
                things: ports,
                complete: ("has a known leaf switch", "have a known leaf switch"),
                lacks: ("has no known leaf switch", "have no known leaf switch"),
                meaning: "a congested leaf is only inferred from ports that are congested together",
                next: "Add Slurm's topology.conf, the output of ibnetdiscover or LLDP neighbours to `topology.files` in the settings.",
            },
            _ => Self {
                things: ("GPU in use", "GPUs in use"),
                complete: ("has a job label", "have a job label"),
                lacks: ("has no job label", "have no job label"),
                meaning: "nodes with equal power and traffic count as one job",
                next: "Export the label hpc_job or pod from dcgm-exporter, run gaunt-node, or add the output of `squeue --json` to `jobs.files` in the settings.",
            },
        }
    }
}

/// A number of things, `all` before several.
fn count_things(count: u32, (one, several): (&str, &str), all: &str) -> String {
    let things = if count == 1 { one } else { several };
    let all = if count == 1 || all.is_empty() { String::new() } else { format!("{all} ") };
    format!("{all}{count} {things}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_agree_with_their_numbers() {
        let of = |kind, known, total| describe_check(kind, known, total).0;
        assert_eq!(of(CoverageKind::Targets, 1, 1), "1 target is read");
        assert_eq!(of(CoverageKind::HostMetrics, 4, 4), "all 4 nodes with GPUs have host metrics");
        assert_eq!(
            of(CoverageKind::PortMetrics, 3, 4),
            "1 of 4 nodes with GPUs has no metrics of RDMA ports: the network there is not checked"
        );
        assert_eq!(
            of(CoverageKind::Rails, 0, 24),
            "24 of 24 active RDMA ports have no known rail: ports with equal device numbers count \
             as one rail"
        );
    }
}
