//! Which pod holds which GPU, as reported by the kubelet over its pod-resources socket.
//!
//! Control groups contain only the UIDs of pods, and the kubelet reports devices only with the names of pods: the GPU
//! joins the two.

use std::collections::BTreeMap;

use gaunt_schema::SanitizedText;

mod pod_resources;
mod pod_resources_messages;

pub(crate) use pod_resources::{PodResourcesError, query_holders};

/// The most devices whose holders are kept: more than any host has, because the kubelet lists the devices of each pod.
const MAX_DEVICES: usize = 4_096;

/// The prefixes of the UUID of a GPU or of an instance of one.
const UUIDS: [&str; 2] = ["GPU-", "MIG-"];

/// The separator of a GPU's UUID and the replica number where several pods time-share it.
const SHARE: &str = "::";

/// The prefix of a GPU's name where the device plugin numbers them as the kernel does: `nvidia0`, and `nvidia0/gi3` or
/// `nvidia0/vgpu1` for a part of it.
const COUNTED: &str = "nvidia";

/// The driver of NVIDIA's claims (dynamic resource allocation).
const DRA_DRIVER: &str = "gpu.nvidia.com";

/// The prefix of a GPU's name there, before its number; its MIG instances have a suffix.
const CLAIMED: &str = "gpu-";

/// The most holders of one device that are kept.
const MAX_HOLDERS: usize = 64;

/// The most holders that a text names.
const MAX_NAMED: usize = 8;

/// The container that holds a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceHolder {
    /// The pod's namespace.
    pub(crate) namespace: SanitizedText,
    /// The pod's name.
    pub(crate) pod: SanitizedText,
    /// The container's name in the pod.
    pub(crate) container: SanitizedText,
}

impl DeviceHolder {
    /// Its identity, as labels.
    pub(crate) fn pod_labels(&self) -> [(&'static str, SanitizedText); 3] {
        [
            ("namespace", self.namespace.clone()),
            ("pod", self.pod.clone()),
            ("container", self.container.clone()),
        ]
    }

    /// The job name of a pod: pod names are unique only within their namespace.
    pub(crate) fn job_name(&self) -> SanitizedText {
        SanitizedText::new(&format!("{}/{}", &*self.namespace, &*self.pod))
    }
}

/// The holders of all devices that are GPUs or parts of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceHolders(BTreeMap<SanitizedText, Vec<DeviceHolder>>);

impl DeviceHolders {
    /// The holder of the devices with these names, if all that are held have the same.
    pub(crate) fn find_holder<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Option<&DeviceHolder> {
        let mut holders = names.filter_map(|name| self.0.get(name)).flatten();
        let first = holders.next()?;
        // If several share a GPU, the one that runs now is unknown.
        holders.all(|other| other == first).then_some(first)
    }

    /// The pods that share the devices with these names, if they are several: as a text, and how many.
    pub(crate) fn find_sharers<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Option<(SanitizedText, usize)> {
        let holders = names.filter_map(|name| self.0.get(name)).flatten();
        let mut pods: Vec<SanitizedText> = holders.map(DeviceHolder::job_name).collect();
        pods.sort_unstable();
        pods.dedup();
        let count = pods.len();
        if count < 2 {
            return None;
        }
        let shown: Vec<&str> = pods.iter().take(MAX_NAMED).map(SanitizedText::as_str).collect();
        let list = shown.join(", ");
        let rest = count.saturating_sub(MAX_NAMED);
        let text = if rest > 0 { format!("{list} and {rest} more") } else { list };
        Some((SanitizedText::new(&text), count))
    }

    /// The number of pods that hold devices, and of held devices.
    pub(crate) fn count_pods_and_devices(&self) -> (usize, usize) {
        let holders = self.0.values().flatten();
        let mut pods: Vec<_> = holders.map(|holder| (&holder.namespace, &holder.pod)).collect();
        pods.sort_unstable();
        pods.dedup();
        (pods.len(), self.0.len())
    }

    fn of(response: pod_resources_messages::ListPodResourcesResponse) -> Self {
        let mut holders: BTreeMap<SanitizedText, Vec<DeviceHolder>> = BTreeMap::new();
        for pod in response.pod_resources {
            for container in pod.containers {
                let holder = DeviceHolder {
                    namespace: SanitizedText::new(&pod.namespace),
                    pod: SanitizedText::new(&pod.name),
                    container: SanitizedText::new(&container.name),
                };
                let ids = container.devices.iter().flat_map(|device| &device.device_ids);
                let claims = container.dynamic_resources.iter();
                let claimed = claims.flat_map(|claim| &claim.claim_resources);
                let claimed = claimed.filter(|resource| resource.driver_name == DRA_DRIVER);
                let claimed =
                    claimed.filter_map(|resource| parse_claimed_device(&resource.device_name));
                for name in ids.filter_map(|id| parse_device_id(id)).chain(claimed) {
                    let name = SanitizedText::new(&name);
                    if holders.len() >= MAX_DEVICES && !holders.contains_key(&name) {
                        continue;
                    }
                    let device_holders = holders.entry(name).or_default();
                    // Two replicas of one GPU may be allocated to one container.
                    if device_holders.len() < MAX_HOLDERS && !device_holders.contains(&holder) {
                        device_holders.push(holder.clone());
                    }
                }
            }
        }
        Self(holders)
    }
}

/// The name of the GPU, or of its instance, for a device plugin's id; none for other devices.
fn parse_device_id(id: &str) -> Option<String> {
    if UUIDS.iter().any(|prefix| id.starts_with(prefix)) {
        return Some(id.split_once(SHARE).map_or(id, |(uuid, _)| uuid).to_owned());
    }
    let (number, part) =
        id.strip_prefix(COUNTED)?.split_once('/').unwrap_or((&id[COUNTED.len()..], ""));
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    let instance = part.split('/').find_map(|part| part.strip_prefix("gi"));
    let name = match instance {
        Some(instance) => instance_name(number, instance),
        None => format!("{COUNTED}{number}"),
    };
    is_number.then_some(name)
}

/// The name of the GPU for the name of a claimed device: `gpu-3`, and `gpu-3-mig-1g10gb-19-0` for an instance of it, whose
/// place on the GPU the driver does not report. Other devices, such as `gpu-vfio-3`, belong to virtual machines.
fn parse_claimed_device(name: &str) -> Option<String> {
    let rest = name.strip_prefix(CLAIMED)?;
    let (number, part) = rest.split_once('-').unwrap_or((rest, ""));
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    (is_number && (part.is_empty() || part.starts_with("mig-")))
        .then(|| format!("{COUNTED}{number}"))
}

/// The name of an instance where GPUs are numbered.
fn instance_name(gpu: &str, instance: &str) -> String {
    format!("{COUNTED}{gpu}/gi{instance}")
}

/// The names that a device plugin may use for a GPU: its UUID, and its number.
pub(crate) fn gpu_names(uuid: Option<&str>, number: u32) -> impl Iterator<Item = String> {
    uuid.map(str::to_owned).into_iter().chain([format!("{COUNTED}{number}")])
}

/// The names that a device plugin may use for an instance of a GPU.
pub(crate) fn mig_names(
    uuid: Option<&str>,
    gpu: u32,
    instance: Option<&str>,
) -> impl Iterator<Item = String> {
    let counted = instance.map(|instance| instance_name(&gpu.to_string(), instance));
    uuid.map(str::to_owned).into_iter().chain(counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_resources_messages::{
        ClaimResource, ContainerDevices, ContainerResources, DynamicResource,
        ListPodResourcesResponse, PodResources,
    };

    fn pod_with_devices(namespace: &str, name: &str, ids: &[&str]) -> PodResources {
        let devices = ContainerDevices {
            resource_name: "nvidia.com/gpu".to_owned(),
            device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        };
        let container = ContainerResources {
            name: "main".to_owned(),
            devices: vec![devices],
            dynamic_resources: Vec::new(),
        };
        PodResources {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            containers: vec![container],
        }
    }

    fn holders_of_pods(pods: Vec<PodResources>) -> DeviceHolders {
        DeviceHolders::of(ListPodResourcesResponse { pod_resources: pods })
    }

    #[test]
    fn device_plugin_ids_become_gpu_names() {
        for (id, name) in [
            ("GPU-1a2b", Some("GPU-1a2b")),
            ("GPU-1a2b::7", Some("GPU-1a2b")),
            ("MIG-9f00", Some("MIG-9f00")),
            ("MIG-9f00::0", Some("MIG-9f00")),
            ("nvidia3", Some("nvidia3")),
            ("nvidia3/vgpu2", Some("nvidia3")),
            ("nvidia3/gi5", Some("nvidia3/gi5")),
            ("nvidia3/gi5/vgpu0", Some("nvidia3/gi5")),
            ("nvidia", None),
            ("nvidiactl", None),
            ("mlx5_0", None),
            ("", None),
        ] {
            assert_eq!(parse_device_id(id).as_deref(), name, "{id}");
        }
        assert!(gpu_names(Some("GPU-1a2b"), 3).eq(["GPU-1a2b", "nvidia3"]));
        assert!(mig_names(None, 3, Some("5")).eq(["nvidia3/gi5"]));
    }

    #[test]
    fn claimed_devices_have_holders() {
        let claim = |driver: &str, device: &str| {
            let mut pod = pod_with_devices("ml", "train-0", &[]);
            let resource =
                ClaimResource { driver_name: driver.to_owned(), device_name: device.to_owned() };
            let claim = DynamicResource { claim_resources: vec![resource] };
            pod.containers[0].dynamic_resources.push(claim);
            holders_of_pods(vec![pod])
        };
        for device in ["gpu-3", "gpu-3-mig-1g10gb-19-0", "gpu-3-mig-19-0-1"] {
            let pods = claim("gpu.nvidia.com", device);
            let holder =
                pods.find_holder(gpu_names(None, 3).collect::<Vec<_>>().iter().map(|name| &**name));
            assert_eq!(holder.map(|holder| &*holder.pod), Some("train-0"), "{device}");
        }
        for (driver, device) in [
            ("nic.example", "gpu-3"),
            ("gpu.nvidia.com", "gpu-vfio-3"),
            ("gpu.nvidia.com", "gpu-"),
            ("gpu.nvidia.com", "channel-0"),
        ] {
            assert_eq!(claim(driver, device), DeviceHolders::default(), "{driver} {device}");
        }
    }

    #[test]
    fn gpu_shared_by_pods_lists_them() {
        let pods: Vec<_> = (0..10)
            .map(|pod| pod_with_devices("ml", &format!("chat-{pod}"), &[&format!("GPU-a::{pod}")]))
            .collect();
        let pods = holders_of_pods(pods);
        let (names, count) = pods.find_sharers(["GPU-a"].into_iter()).unwrap();
        assert_eq!(count, 10);
        assert!(names.starts_with("ml/chat-0, ml/chat-1, "), "{names}");
        assert!(names.ends_with("ml/chat-7 and 2 more"), "{names}");
        let one = holders_of_pods(vec![pod_with_devices("ml", "a", &["GPU-a::0", "GPU-a::1"])]);
        assert_eq!(one.find_sharers(["GPU-a"].into_iter()), None);
    }

    #[test]
    fn gpu_shared_by_pods_has_no_holder() {
        let pods = holders_of_pods(vec![
            pod_with_devices("ml", "train-0", &["GPU-a", "GPU-b::0", "GPU-b::1"]),
            pod_with_devices("ml", "chat", &["GPU-c::0"]),
            pod_with_devices("web", "chat", &["GPU-c::1", "rdma0"]),
        ]);
        let holder_name = |names: &[&str]| {
            pods.find_holder(names.iter().copied()).map(|holder| holder.job_name().to_string())
        };
        assert_eq!(holder_name(&["GPU-a"]).as_deref(), Some("ml/train-0"));
        assert_eq!(holder_name(&["GPU-b"]).as_deref(), Some("ml/train-0"), "two shares of one pod");
        assert_eq!(holder_name(&["GPU-a", "GPU-free"]).as_deref(), Some("ml/train-0"));
        assert_eq!(holder_name(&["GPU-c"]), None, "two pods of one name in two namespaces");
        assert_eq!(holder_name(&["GPU-a", "GPU-c"]), None);
        assert_eq!(pods.count_pods_and_devices(), (3, 3));
    }
}
