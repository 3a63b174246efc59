//! Who holds a GPU, as the labels of its series name it: a job of a batch system, or one or more pods.

use super::report_builder::label_text;
use crate::text::TextSample;

/// The most holders of one GPU that are kept: device plugins share a GPU among fewer.
pub(super) const MAX_HOLDERS: usize = 64;

/// The most holders that a text names.
const MAX_NAMED: usize = 8;

/// The labels of a pod, under their names of now and before.
const POD_LABELS: [&str; 3] =
    ["pod|pod_name", "namespace|pod_namespace", "container|container_name"];

/// The same, as a Prometheus renames them whose targets have these labels too.
const RENAMED_LABELS: [&str; 3] = ["exported_pod", "exported_namespace", "exported_container"];

/// Parts of the names of the pods of exporters, which hold no GPU: a server names them on each series, used GPU or not.
const EXPORTERS: [&str; 2] = ["dcgm-exporter", "metrics-exporter"];

/// Whether this is the name of an exporter's pod.
pub fn is_exporter_pod(name: &str) -> bool {
    EXPORTERS.iter().any(|exporter| name.contains(exporter))
}

/// The labels of a GPU's job.
pub(super) type JobLabels = Vec<(&'static str, String)>;

/// A job or pod that holds a GPU, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GpuHolder {
    /// The job, or the controller of the pod.
    job: String,
    /// The pod: its labels, with our names for them.
    pod: JobLabels,
}

impl GpuHolder {
    /// The holder that the labels of a series name.
    pub(super) fn of_sample(sample: &TextSample<'_, '_>) -> Option<Self> {
        if let Some(job) = label_text(sample, "hpc_job|job_id|slurm_job_id") {
            return Some(Self { job: job.into_owned(), pod: Vec::new() });
        }
        // A server that adds these labels for the exporter itself renames those of the page.
        let is_renamed = sample.find_label("exported_pod").is_some();
        let [pod, namespace, container] = if is_renamed { RENAMED_LABELS } else { POD_LABELS }
            .map(|name| label_text(sample, name));
        let pod = pod.filter(|pod| !is_exporter_pod(pod))?;
        let owner = pod_owner(&pod);
        let job = match &namespace {
            Some(namespace) => format!("{namespace}/{owner}"),
            None => owner.to_owned(),
        };
        let labels = [("namespace", namespace), ("pod", Some(pod)), ("container", container)];
        let labels = labels.into_iter().filter_map(|(name, text)| Some((name, text?.into_owned())));
        Some(Self { job, pod: labels.collect() })
    }

    /// The labels of the pod, if it is one.
    pub(super) fn pod_labels(&self) -> &[(&'static str, String)] {
        &self.pod
    }

    fn pod_label(&self, name: &str) -> Option<&str> {
        let label = self.pod.iter().find(|(label, _)| *label == name);
        label.map(|(_, text)| text.as_str())
    }

    /// The name among other holders: pods have their names only within their namespace.
    fn full_name(&self) -> String {
        match (self.pod_label("namespace"), self.pod_label("pod")) {
            (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
            (None, Some(pod)) => pod.to_owned(),
            _ => self.job.clone(),
        }
    }
}

/// The labels of the job that holds a GPU. Where several jobs share it there is no job, and the name lists them.
pub(super) fn job_labels(holders: &[GpuHolder]) -> JobLabels {
    let Some((first, others)) = holders.split_first() else { return Vec::new() };
    let job = ("job", first.job.clone());
    if others.is_empty() {
        let name = first.pod_label("pod").map(|pod| ("name", pod.to_owned()));
        return std::iter::once(job).chain(name).chain(first.pod.iter().cloned()).collect();
    }
    let is_one_job = others.iter().all(|other| other.job == first.job);
    let shared_by = ("shared_by", holders.len().to_string());
    is_one_job
        .then_some(job)
        .into_iter()
        .chain([("name", list_names(holders)), shared_by])
        .collect()
}

fn list_names(holders: &[GpuHolder]) -> String {
    let mut names: Vec<String> = holders.iter().map(GpuHolder::full_name).collect();
    names.sort();
    let rest = names.len().saturating_sub(MAX_NAMED);
    names.truncate(MAX_NAMED);
    let names = names.join(", ");
    if rest > 0 { format!("{names} and {rest} more") } else { names }
}

/// The controller of a pod, as far as its name shows: Kubernetes appends to the controller's name a template hash, five
/// random characters or an index, and training operators a role before the index.
fn pod_owner(pod: &str) -> &str {
    let strip_part = |name, is_part: fn(&str) -> bool| match str::rsplit_once(name, '-') {
        Some((rest, part)) if is_part(part) && !rest.is_empty() => rest,
        _ => name,
    };
    if let Some((owner, _)) = split_template_hash(pod) {
        return owner;
    }
    let owner = match pod.rsplit_once('-') {
        Some((rest, part)) if is_suffix(part) => rest,
        _ => pod,
    };
    let owner = strip_part(owner, |part| part.bytes().all(|byte| byte.is_ascii_digit()));
    strip_part(owner, |part| ROLES.contains(&part))
}

/// The hash of the template of a pod that a Deployment made, as its name shows: `7d4b9c8f5` of `vllm-7d4b9c8f5-x2k7q`.
/// Pods of one template have the same hash, and each change of the template gives another one.
pub fn pod_template_hash(pod: &str) -> Option<&str> {
    let (_, hash) = split_template_hash(pod)?;
    // A pod of a CronJob has the minute of its schedule there.
    (!hash.bytes().all(|byte| byte.is_ascii_digit())).then_some(hash)
}

/// Splits the name of a Deployment's pod into the Deployment and the hash of its template.
fn split_template_hash(pod: &str) -> Option<(&str, &str)> {
    let (rest, suffix) = pod.rsplit_once('-')?;
    let (owner, hash) = rest.rsplit_once('-')?;
    let is_template = is_suffix(suffix) && (8..=10).contains(&hash.len()) && is_random(hash);
    is_template.then_some((owner, hash))
}

/// Whether it is the random end of a generated name.
fn is_suffix(part: &str) -> bool {
    part.len() == 5 && is_random(part)
}

fn is_random(part: &str) -> bool {
    part.bytes().all(|byte| DRAWN.contains(&byte))
}

/// The characters of which Kubernetes makes generated names: no vowels, so that they spell no words.
const DRAWN: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The roles that training operators give to the pods of one job.
const ROLES: [&str; 5] = ["worker", "master", "launcher", "chief", "ps"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_hash_is_that_of_a_deployments_pod() {
        for (pod, owner, hash) in [
            ("vllm-7d4b9c8f5-x2k7q", "vllm", Some("7d4b9c8f5")),
            ("train-worker-0", "train", None),
            ("nightly-28945672-x2k7q", "nightly", None),
            ("eval-x2k7q", "eval", None),
            ("-", "-", None),
        ] {
            assert_eq!((pod_owner(pod), pod_template_hash(pod)), (owner, hash), "{pod}");
        }
    }
}
