//! The owner of a process: the Slurm job, pod or container from its control group, and its user.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use gaunt_schema::SanitizedText;

use crate::kubelet::DeviceHolder;

/// Where the names of users are.
const USERS: &str = "/etc/passwd";

/// The name of the probe program.
const PROBE: &str = "gaunt-probe";

/// The length of a container's id in hexadecimal digits.
const CONTAINER_ID: usize = 64;

/// The digits of the id for display.
const SHORT_ID: usize = 12;

/// The source of pod control groups.
const KUBERNETES: &str = "kubernetes";

/// Labels of an info series.
pub(super) type InfoLabels = Vec<(&'static str, SanitizedText)>;

/// The data of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessOwner {
    /// The program's name.
    pub(super) name: Option<SanitizedText>,
    /// Its user.
    pub(super) user: Option<SanitizedText>,
    /// Its control group.
    pub(super) group: ControlGroup,
}

/// The data from a control group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ControlGroup {
    /// The source of the group: slurm, kubernetes, docker or podman.
    pub(super) source: Option<&'static str>,
    /// The Slurm job's number.
    pub(super) job: Option<SanitizedText>,
    /// The job's step.
    pub(super) step: Option<SanitizedText>,
    /// The pod's UID.
    pub(super) pod: Option<SanitizedText>,
    /// The container's short id.
    pub(super) container: Option<SanitizedText>,
}

/// The owners of the processes that are on GPUs now.
pub(super) struct ProcessOwners {
    proc_root: PathBuf,
    owners: BTreeMap<u32, ProcessOwner>,
}

impl ProcessOwners {
    pub(super) fn new(proc_root: &Path) -> Self {
        Self { proc_root: proc_root.to_owned(), owners: BTreeMap::new() }
    }

    /// Drops the processes that are not in `pids`, and reads the new ones.
    pub(super) fn update_processes(&mut self, pids: &[u32]) {
        self.owners.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            self.owners.entry(*pid).or_insert_with(|| read_owner(&self.proc_root, *pid));
        }
    }

    /// The owner of a process.
    pub(super) fn of(&self, pid: u32) -> Option<&ProcessOwner> {
        self.owners.get(&pid)
    }
}

impl ProcessOwner {
    /// The labels of the process's info series.
    pub(super) fn process_labels(&self, holder: Option<&DeviceHolder>) -> InfoLabels {
        let group = &self.group;
        let mut labels = vec![
            ("name", self.name.clone()),
            ("user", self.user.clone()),
            ("job", group.job.clone()),
            ("step", group.step.clone()),
        ];
        labels.extend(group.container_labels(holder));
        known_labels(labels)
    }

    /// The labels of a GPU's job series: the job is the job's number, else the pod, else the container.
    pub(super) fn job_labels(&self, holder: Option<&DeviceHolder>) -> Option<InfoLabels> {
        if self.name.as_deref() == Some(PROBE) {
            // Whatever started it, a probe is its own job.
            let job = [("job", Some(SanitizedText::new(PROBE))), ("user", self.user.clone())];
            return Some(known_labels(job.to_vec()));
        }
        let group = &self.group;
        let pod = group
            .pod
            .clone()
            .map(|uid| group.pod_holder(holder).map_or(uid, DeviceHolder::job_name));
        let job = group.job.clone().or(pod).or_else(|| group.container.clone())?;
        let mut labels =
            vec![("job", Some(job)), ("step", group.step.clone()), ("user", self.user.clone())];
        labels.extend(group.container_labels(holder));
        Some(known_labels(labels))
    }
}

/// The labels of the job series of a GPU that a pod holds without a process.
pub(super) fn held_gpu_labels(holder: &DeviceHolder) -> InfoLabels {
    let job = [("job", holder.job_name())];
    let source = [("source", SanitizedText::new(KUBERNETES))];
    job.into_iter().chain(holder.pod_labels()).chain(source).collect()
}

/// The labels of the job series of a GPU that several pods share.
pub(super) fn shared_gpu_labels(names: SanitizedText, count: usize) -> InfoLabels {
    let count = SanitizedText::new(&count.to_string());
    let source = SanitizedText::new(KUBERNETES);
    vec![("name", names), ("shared_by", count), ("source", source)]
}

impl ControlGroup {
    /// The kubelet's holder if this group belongs to the same pod: another process may run on a held GPU.
    fn pod_holder<'a>(&self, holder: Option<&'a DeviceHolder>) -> Option<&'a DeviceHolder> {
        holder.filter(|_| self.pod.is_some())
    }

    /// The labels of pod and container: their names if the kubelet reported them, else the ids from the group.
    fn container_labels(
        &self,
        holder: Option<&DeviceHolder>,
    ) -> Vec<(&'static str, Option<SanitizedText>)> {
        let mut labels = match self.pod_holder(holder) {
            Some(holder) => holder.pod_labels().map(|(label, name)| (label, Some(name))).to_vec(),
            None => vec![("pod", self.pod.clone()), ("container", self.container.clone())],
        };
        if self.pod_holder(holder).is_some() {
            labels.push(("pod_uid", self.pod.clone()));
        }
        labels.push(("source", self.source.map(SanitizedText::new)));
        labels
    }
}

/// Labels without those that are not known.
fn known_labels(labels: Vec<(&'static str, Option<SanitizedText>)>) -> InfoLabels {
    labels.into_iter().filter_map(|(label, text)| Some((label, text?))).collect()
}

fn read_owner(proc_root: &Path, pid: u32) -> ProcessOwner {
    let folder = proc_root.join(pid.to_string());
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let uid = read("status").and_then(|status| parse_uid(&status));
    ProcessOwner {
        name: read("comm").map(|name| SanitizedText::new(name.trim())),
        user: uid.map(|uid| find_user_name(&fs::read_to_string(USERS).unwrap_or_default(), &uid)),
        group: read("cgroup").map(|text| parse_group(&text)).unwrap_or_default(),
    }
}

/// The real user id in a process's status.
fn parse_uid(status: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// The name of a user id, or the id itself.
fn find_user_name(users: &str, uid: &str) -> SanitizedText {
    let named = users.lines().find_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        (parts.nth(1)? == uid).then_some(name)
    });
    SanitizedText::new(named.unwrap_or(uid))
}

/// Parses a process's `cgroup` file: one line of version 2, or one for each controller of version 1.
fn parse_group(text: &str) -> ControlGroup {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut group = ControlGroup::default();
    for path in paths {
        let parsed = parse_group_path(path);
        // Under version 1 some controllers have less specific paths: the most specific one is used.
        if count_known_parts(&parsed) > count_known_parts(&group) {
            group = parsed;
        }
    }
    group
}

fn count_known_parts(group: &ControlGroup) -> usize {
    let parts = [&group.job, &group.step, &group.pod, &group.container];
    parts.into_iter().flatten().count()
}

fn parse_group_path(path: &str) -> ControlGroup {
    let mut group = ControlGroup::default();
    let slurm =
        path.split('/').any(|part| part.starts_with("slurm") || part.contains("slurmstepd"));
    for part in path.split('/') {
        let name = part.strip_suffix(".slice").or(part.strip_suffix(".scope")).unwrap_or(part);
        if let Some(job) = part.strip_prefix("job_").filter(|_| slurm) {
            (group.source, group.job) = (Some("slurm"), Some(SanitizedText::new(job)));
        } else if let Some(step) = part.strip_prefix("step_").filter(|_| slurm) {
            group.step = Some(SanitizedText::new(step));
        } else if let Some(pod) = parse_pod_uid(name) {
            (group.source, group.pod) = (Some(KUBERNETES), Some(SanitizedText::new(&pod)));
        } else if let Some((runtime, id)) = parse_container_id(name) {
            group.container = Some(SanitizedText::new(&id[..SHORT_ID]));
            // The runtime of a pod's containers is not the source of the group.
            group.source = group.source.or(Some(runtime));
        }
    }
    group
}

/// The UID of a pod: `pod<uid>`, or with systemd `kubepods-burstable-pod<uid with underscores>`.
fn parse_pod_uid(part: &str) -> Option<String> {
    let (before, uid) = part.rsplit_once("pod")?;
    let named = before.is_empty() || (before.starts_with("kubepods") && before.ends_with('-'));
    let uid = uid.replace('_', "-");
    let is_uid = uid.len() >= 32
        && uid.chars().all(|character| character.is_ascii_hexdigit() || character == '-');
    (named && is_uid).then_some(uid)
}

/// The id of a container, and its runtime.
fn parse_container_id(part: &str) -> Option<(&'static str, &str)> {
    let (runtime, id) = part.rsplit_once('-').unwrap_or(("", part));
    let is_id =
        id.len() == CONTAINER_ID && id.chars().all(|character| character.is_ascii_hexdigit());
    let runtime = if runtime.starts_with("libpod") { "podman" } else { "docker" };
    is_id.then_some((runtime, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f5a1c9e2b7d8f6031aa4f5a1c9e2b7d8f6031aa4f5a1c9e2b7d8f6031aabbcc";

    fn parsed_parts(text: &str) -> Vec<String> {
        let group = parse_group(&text.replace("ID", ID));
        let parts = [&group.job, &group.step, &group.pod, &group.container];
        let text = |part: &Option<SanitizedText>| part.as_deref().unwrap_or("-").to_owned();
        [group.source.unwrap_or("-").to_owned()].into_iter().chain(parts.map(text)).collect()
    }

    #[test]
    fn slurm_job_and_step_are_parsed_under_both_cgroup_versions() {
        let first =
            "12:pids:/\n11:devices:/slurm/uid_1000/job_4711/step_0/task_3\n1:name=systemd:/\n";
        assert_eq!(parsed_parts(first), ["slurm", "4711", "0", "-", "-"]);
        let second = "0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0\n";
        assert_eq!(parsed_parts(second), ["slurm", "4711", "batch", "-", "-"]);
        let cloned = "0::/system.slice/node7_slurmstepd.scope/job_9/step_extern/user/task_0\n";
        assert_eq!(parsed_parts(cloned), ["slurm", "9", "extern", "-", "-"]);
        assert_eq!(parsed_parts("0::/user.slice/job_9/step_1\n"), ["-", "-", "-", "-", "-"]);
    }

    #[test]
    fn kubernetes_pod_and_container_are_parsed_under_both_drivers() {
        let uid = "8b1e2f6c-0d3a-4c55-9e0b-7a6f5d4c3b2a";
        let files = format!("5:devices:/kubepods/burstable/pod{uid}/ID\n");
        assert_eq!(parsed_parts(&files), ["kubernetes", "-", "-", uid, &ID[..12]]);
        let slice = format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-ID.scope\n",
            uid.replace('-', "_")
        );
        assert_eq!(parsed_parts(&slice), ["kubernetes", "-", "-", uid, &ID[..12]]);
    }

    #[test]
    fn docker_and_podman_containers_are_parsed() {
        assert_eq!(parsed_parts("5:devices:/docker/ID\n"), ["docker", "-", "-", "-", &ID[..12]]);
        assert_eq!(parsed_parts("0::/system.slice/docker-ID.scope\n")[0], "docker");
        let podman = "0::/machine.slice/libpod-ID.scope/container\n";
        assert_eq!(parsed_parts(podman), ["podman", "-", "-", "-", &ID[..12]]);
        assert_eq!(parsed_parts("0::/user.slice/user-1000.slice/session-2.scope\n")[0], "-");
    }

    #[test]
    fn user_names_are_resolved_where_possible() {
        let users = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(&*find_user_name(users, "1000"), "ada");
        assert_eq!(&*find_user_name(users, "4242"), "4242");
        assert_eq!(
            parse_uid("Name:\tpython\nUid:\t1000\t1000\t1000\t1000\n").as_deref(),
            Some("1000")
        );
    }
}
