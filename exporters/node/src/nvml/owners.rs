//! Whose a process is: the Slurm job, pod or container that its control group names, and its user.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use gaunt_schema::Safe;

use crate::kubelet::Holder;

/// Where the names of users are.
const USERS: &str = "/etc/passwd";

/// The name of the program that measures the wires between GPUs.
const PROBE: &str = "gaunt-probe";

/// The length of a container's id in hexadecimal digits.
const CONTAINER_ID: usize = 64;

/// As many digits of it as people read.
const SHORT_ID: usize = 12;

/// Who makes the groups of pods.
const KUBERNETES: &str = "kubernetes";

/// Labels of an info series.
pub(super) type Labels = Vec<(&'static str, Safe)>;

/// What is known of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    /// The program's name.
    pub(super) name: Option<Safe>,
    /// Who runs it.
    pub(super) user: Option<Safe>,
    /// What it belongs to.
    pub(super) group: Group,
}

/// What a control group says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    /// Who made the group: slurm, kubernetes, docker or podman.
    pub(super) source: Option<&'static str>,
    /// The Slurm job's number.
    pub(super) job: Option<Safe>,
    /// The job's step.
    pub(super) step: Option<Safe>,
    /// The pod's UID.
    pub(super) pod: Option<Safe>,
    /// The container's short id.
    pub(super) container: Option<Safe>,
}

/// The owners of the processes that are on GPUs now.
pub(super) struct Owners {
    proc_root: PathBuf,
    known: BTreeMap<u32, Owner>,
}

impl Owners {
    pub(super) fn new(proc_root: &Path) -> Self {
        Self { proc_root: proc_root.to_owned(), known: BTreeMap::new() }
    }

    /// Forgets the processes that are not among these, and gets to know the new ones.
    pub(super) fn keep(&mut self, pids: &[u32]) {
        self.known.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            self.known.entry(*pid).or_insert_with(|| owner(&self.proc_root, *pid));
        }
    }

    /// Whose a process is.
    pub(super) fn of(&self, pid: u32) -> Option<&Owner> {
        self.known.get(&pid)
    }
}

impl Owner {
    /// The labels of the process's info series.
    pub(super) fn labels(&self, holder: Option<&Holder>) -> Labels {
        let group = &self.group;
        let mut labels = vec![
            ("name", self.name.clone()),
            ("user", self.user.clone()),
            ("job", group.job.clone()),
            ("step", group.step.clone()),
        ];
        labels.extend(group.place(holder));
        known(labels)
    }

    /// The labels of a GPU's job series: a job's number, else the pod, else the container stands for the job.
    pub(super) fn job(&self, holder: Option<&Holder>) -> Option<Labels> {
        if self.name.as_deref() == Some(PROBE) {
            // Whoever started it, it is a job of its own, and nobody's fault.
            let job = [("job", Some(Safe::new(PROBE))), ("user", self.user.clone())];
            return Some(known(job.to_vec()));
        }
        let group = &self.group;
        let pod = group.pod.clone().map(|uid| group.named(holder).map_or(uid, Holder::job));
        let job = group.job.clone().or(pod).or_else(|| group.container.clone())?;
        let mut labels =
            vec![("job", Some(job)), ("step", group.step.clone()), ("user", self.user.clone())];
        labels.extend(group.place(holder));
        Some(known(labels))
    }
}

/// The labels of the job series of a GPU that a pod holds and nobody uses yet.
pub(super) fn held(holder: &Holder) -> Labels {
    let job = [("job", holder.job())];
    let source = [("source", Safe::new(KUBERNETES))];
    job.into_iter().chain(holder.labels()).chain(source).collect()
}

impl Group {
    /// The kubelet's word for this group, if it is a pod's: who holds a GPU is not whoever else runs on it.
    fn named<'a>(&self, holder: Option<&'a Holder>) -> Option<&'a Holder> {
        holder.filter(|_| self.pod.is_some())
    }

    /// In which pod and container it is: by their names where the kubelet told them, else by what the group says.
    fn place(&self, holder: Option<&Holder>) -> Vec<(&'static str, Option<Safe>)> {
        let mut labels = match self.named(holder) {
            Some(holder) => holder.labels().map(|(label, name)| (label, Some(name))).to_vec(),
            None => vec![("pod", self.pod.clone()), ("container", self.container.clone())],
        };
        if self.named(holder).is_some() {
            labels.push(("pod_uid", self.pod.clone()));
        }
        labels.push(("source", self.source.map(Safe::new)));
        labels
    }
}

/// Labels without those that are not known.
fn known(labels: Vec<(&'static str, Option<Safe>)>) -> Labels {
    labels.into_iter().filter_map(|(label, text)| Some((label, text?))).collect()
}

fn owner(proc_root: &Path, pid: u32) -> Owner {
    let folder = proc_root.join(pid.to_string());
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let uid = read("status").and_then(|status| uid(&status));
    Owner {
        name: read("comm").map(|name| Safe::new(name.trim())),
        user: uid.map(|uid| user(&fs::read_to_string(USERS).unwrap_or_default(), &uid)),
        group: read("cgroup").map(|text| group(&text)).unwrap_or_default(),
    }
}

/// The real user id in a process's status.
fn uid(status: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// The name of a user id, or the id itself.
fn user(users: &str, uid: &str) -> Safe {
    let named = users.lines().find_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        (parts.nth(1)? == uid).then_some(name)
    });
    Safe::new(named.unwrap_or(uid))
}

/// What the lines of a process's `cgroup` say: one of version 2, or one for each controller of version 1.
fn group(text: &str) -> Group {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut best = Group::default();
    for path in paths {
        let found = path_group(path);
        // Under version 1 some controllers stand outside: the path that says most wins.
        if words(&found) > words(&best) {
            best = found;
        }
    }
    best
}

fn words(group: &Group) -> usize {
    let parts = [&group.job, &group.step, &group.pod, &group.container];
    parts.into_iter().flatten().count()
}

fn path_group(path: &str) -> Group {
    let mut group = Group::default();
    let slurm =
        path.split('/').any(|part| part.starts_with("slurm") || part.contains("slurmstepd"));
    for part in path.split('/') {
        let bare = part.strip_suffix(".slice").or(part.strip_suffix(".scope")).unwrap_or(part);
        if let Some(job) = part.strip_prefix("job_").filter(|_| slurm) {
            (group.source, group.job) = (Some("slurm"), Some(Safe::new(job)));
        } else if let Some(step) = part.strip_prefix("step_").filter(|_| slurm) {
            group.step = Some(Safe::new(step));
        } else if let Some(pod) = pod(bare) {
            (group.source, group.pod) = (Some(KUBERNETES), Some(Safe::new(&pod)));
        } else if let Some((runtime, id)) = container(bare) {
            group.container = Some(Safe::new(&id[..SHORT_ID]));
            // A pod's containers are run by a runtime that has no say in whose they are.
            group.source = group.source.or(Some(runtime));
        }
    }
    group
}

/// The UID of a pod: `pod<uid>`, or with systemd `kubepods-burstable-pod<uid with underscores>`.
fn pod(part: &str) -> Option<String> {
    let (before, uid) = part.rsplit_once("pod")?;
    let named = before.is_empty() || (before.starts_with("kubepods") && before.ends_with('-'));
    let uid = uid.replace('_', "-");
    let is_uid = uid.len() >= 32 && uid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    (named && is_uid).then_some(uid)
}

/// The id of a container, and who runs it.
fn container(part: &str) -> Option<(&'static str, &str)> {
    let (runtime, id) = part.rsplit_once('-').unwrap_or(("", part));
    let is_id = id.len() == CONTAINER_ID && id.chars().all(|c| c.is_ascii_hexdigit());
    let runtime = if runtime.starts_with("libpod") { "podman" } else { "docker" };
    is_id.then_some((runtime, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f5a1c9e2b7d8f6031aa4f5a1c9e2b7d8f6031aa4f5a1c9e2b7d8f6031aabbcc";

    fn said(text: &str) -> Vec<String> {
        let group = group(&text.replace("ID", ID));
        let parts = [&group.job, &group.step, &group.pod, &group.container];
        let text = |part: &Option<Safe>| part.as_deref().unwrap_or("-").to_owned();
        [group.source.unwrap_or("-").to_owned()].into_iter().chain(parts.map(text)).collect()
    }

    #[test]
    fn slurm_names_job_and_step_under_both_versions() {
        let first =
            "12:pids:/\n11:devices:/slurm/uid_1000/job_4711/step_0/task_3\n1:name=systemd:/\n";
        assert_eq!(said(first), ["slurm", "4711", "0", "-", "-"]);
        let second = "0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0\n";
        assert_eq!(said(second), ["slurm", "4711", "batch", "-", "-"]);
        let cloned = "0::/system.slice/node7_slurmstepd.scope/job_9/step_extern/user/task_0\n";
        assert_eq!(said(cloned), ["slurm", "9", "extern", "-", "-"]);
        assert_eq!(said("0::/user.slice/job_9/step_1\n"), ["-", "-", "-", "-", "-"]);
    }

    #[test]
    fn kubernetes_names_pod_and_container_under_both_drivers() {
        let uid = "8b1e2f6c-0d3a-4c55-9e0b-7a6f5d4c3b2a";
        let files = format!("5:devices:/kubepods/burstable/pod{uid}/ID\n");
        assert_eq!(said(&files), ["kubernetes", "-", "-", uid, &ID[..12]]);
        let slice = format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-ID.scope\n",
            uid.replace('-', "_")
        );
        assert_eq!(said(&slice), ["kubernetes", "-", "-", uid, &ID[..12]]);
    }

    #[test]
    fn docker_and_podman_name_the_container() {
        assert_eq!(said("5:devices:/docker/ID\n"), ["docker", "-", "-", "-", &ID[..12]]);
        assert_eq!(said("0::/system.slice/docker-ID.scope\n")[0], "docker");
        let podman = "0::/machine.slice/libpod-ID.scope/container\n";
        assert_eq!(said(podman), ["podman", "-", "-", "-", &ID[..12]]);
        assert_eq!(said("0::/user.slice/user-1000.slice/session-2.scope\n")[0], "-");
    }

    #[test]
    fn users_have_names_where_the_system_knows_them() {
        let users = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(&*user(users, "1000"), "ada");
        assert_eq!(&*user(users, "4242"), "4242");
        assert_eq!(uid("Name:\tpython\nUid:\t1000\t1000\t1000\t1000\n").as_deref(), Some("1000"));
    }
}
