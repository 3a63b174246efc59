//! Names of hosts and jobs as sites choose them.

use super::family::{Forced, JoinStyle};
use crate::{
    cluster_plan::ClusterPlan, exporter_plan::GpuExporter, job_plan::JobKind, random::RandomKey,
};

/// The names that the pages of one machine have for it.
pub(super) struct HostNames {
    pub(super) name: String,
    pub(super) gpu_page_name: Option<String>,
    pub(super) host_page_name: String,
    pub(super) address: String,
}

/// Domain of the full names of a site.
fn site_domain(key: RandomKey) -> &'static str {
    key.child("domain").pick(&["cluster.local", "hpc.example.org", "gpu.internal"])
}

/// The short name of each node, by the rack that it is in.
fn short_names(key: RandomKey, racks: &[usize]) -> Vec<String> {
    let style = key.child("host style").index(7);
    let first = key.child("first number").index(3) * 7 + 1;
    let mut in_rack = vec![0; racks.iter().max().map_or(1, |most| most + 1)];
    let name = |(index, rack): (usize, &usize)| {
        in_rack[*rack] += 1;
        let number = first + index;
        match style {
            0 => format!("gpu{number:03}"),
            1 => format!("node{number}"),
            2 => format!("dgx-{number:02}"),
            3 => format!("rack{:02}-n{:02}", rack + 1, in_rack[*rack]),
            4 => format!("hgx-a{}-{:03}", rack + 1, number),
            // Names of which one is the beginning of another.
            5 => format!("gn{}", number * (1 + 9 * (index % 2))),
            _ => {
                let key = key.child("serial").child_index(index);
                format!("ip-10-{}-{}-{}", rack, key.index(250), number)
            }
        }
    };
    let names: Vec<String> = racks.iter().enumerate().map(name).collect();
    let is_unique = names.iter().collect::<std::collections::BTreeSet<_>>().len() == names.len();
    if is_unique { names } else { (0..names.len()).map(|i| format!("gn{}", first + i)).collect() }
}

/// Draws the way in which pages differ about the name of a machine.
pub(super) fn draw_join(key: RandomKey, forced: &Forced, exporter: GpuExporter) -> JoinStyle {
    let key = key.child("join");
    if exporter == GpuExporter::GauntNode {
        return JoinStyle::Same;
    }
    let is_odd = forced.has_odd_joins.unwrap_or_else(|| key.child("odd").chance(0.15));
    if !is_odd {
        return JoinStyle::Same;
    }
    key.pick(&[
        JoinStyle::ShortAndFull,
        JoinStyle::FullAndShort,
        JoinStyle::Upper,
        JoinStyle::Pod,
        JoinStyle::Localhost,
        JoinStyle::Absent,
    ])
}

/// Draws the names of every node.
pub(super) fn draw_host_names(
    key: RandomKey,
    racks: &[usize],
    join: JoinStyle,
    exporter: GpuExporter,
) -> Vec<HostNames> {
    let key = key.child("hosts");
    let domain = site_domain(key);
    // Two pages of a machine without a common name are joined by their address.
    let is_joined_by_address =
        matches!(join, JoinStyle::Pod | JoinStyle::Localhost | JoinStyle::Absent);
    let has_ip_addresses = key.child("addresses").chance(0.5) && join != JoinStyle::Absent;
    let build = |(index, short): (usize, String)| {
        let full = format!("{short}.{domain}");
        let address = if has_ip_addresses {
            format!("10.{}.0.{}", 20 + racks[index], 11 + index)
        } else {
            short.clone()
        };
        let pod = || {
            let suffix = letters(key.child("exporter pod").child_index(index), 5);
            format!("{}-{suffix}", exporter_pod(exporter))
        };
        let (gpu_page_name, host_page_name) = match join {
            JoinStyle::Same => (Some(short.clone()), short.clone()),
            JoinStyle::ShortAndFull => (Some(short.clone()), full),
            JoinStyle::FullAndShort => (Some(full), short.clone()),
            JoinStyle::Upper => (Some(short.clone()), short.to_uppercase()),
            JoinStyle::Pod => (Some(pod()), short.clone()),
            JoinStyle::Localhost => (Some("localhost".to_owned()), short.clone()),
            JoinStyle::Absent => (None, short.clone()),
        };
        assert!(!is_joined_by_address || host_page_name == short);
        HostNames { name: short, gpu_page_name, host_page_name, address }
    };
    short_names(key, racks).into_iter().enumerate().map(build).collect()
}

fn exporter_pod(exporter: GpuExporter) -> &'static str {
    match exporter {
        GpuExporter::GauntNode => "gaunt-node",
        GpuExporter::Amd => "device-metrics-exporter",
        _ => "nvidia-dcgm-exporter",
    }
}

/// Letters as Kubernetes draws them for the names of pods.
fn letters(key: RandomKey, count: usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..count).map(|index| char::from(key.child_index(index).pick(LETTERS))).collect()
}

/// The pod of a job on one node, as Kubernetes labels it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPod {
    /// Its name: the job's name, with a suffix of its own.
    pub pod: String,
    /// Its namespace.
    pub namespace: String,
    /// Its container.
    pub container: String,
    /// The name of the workload that owns it: the same for all pods of the job.
    pub owner: String,
}

/// The job whose identity a job has: itself, or the job that it continues with other nodes, without a pause.
fn first_of_chain(cluster: &ClusterPlan, job: usize) -> usize {
    let this = &cluster.jobs[job];
    let continues = |earlier: &usize| {
        let other = &cluster.jobs[*earlier];
        (other.runs_s.end - this.runs_s.start).abs() < 1.0
            && other.kind == this.kind
            && other.nodes != this.nodes
            && other.nodes.iter().any(|node| this.nodes.contains(node))
    };
    (0..job).find(continues).map_or(job, |earlier| first_of_chain(cluster, earlier))
}

/// The number of a job, as Slurm and `hpc_job` print it. An elastic job that goes on with other nodes keeps it.
pub fn job_number(cluster: &ClusterPlan, seed: u64, job: usize) -> String {
    let key = RandomKey::new(seed).child("job number");
    let base = 1_000 + key.index(900_000);
    let chain = first_of_chain(cluster, job);
    (base + 17 * chain + key.child_index(chain).index(16)).to_string()
}

/// The pod of a job on the node at a position of the job's list of nodes.
pub fn job_pod(cluster: &ClusterPlan, seed: u64, job: usize, position: usize) -> JobPod {
    const WORDS: [&str; 8] = [
        "llama-pretrain",
        "vision-ft",
        "speech",
        "moe-exp",
        "diffusion",
        "recsys",
        "embed",
        "rlhf",
    ];
    let key = RandomKey::new(seed).child("pods");
    let chain = first_of_chain(cluster, job);
    let word = WORDS[(key.index(WORDS.len()) + chain) % WORDS.len()];
    let owner = format!("{word}-v{}", 1 + chain);
    let namespace = key.child("namespace").pick(&["ml", "research", "team-a"]).to_owned();
    let suffix_key = key.child("suffix").child_index(chain);
    let is_deployment = cluster.jobs[job].kind == JobKind::Serve;
    let pod = if is_deployment {
        let suffix = letters(suffix_key.child_index(position + 1), 5);
        format!("{owner}-{}-{suffix}", letters(suffix_key, 9))
    } else {
        format!("{owner}-worker-{position}")
    };
    let container = if is_deployment { "server" } else { "pytorch" };
    JobPod { pod, namespace, container: container.to_owned(), owner }
}
