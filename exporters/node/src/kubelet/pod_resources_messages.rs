//! The messages of the kubelet's `v1.PodResourcesLister`, limited to the fields that are read; others are skipped.

use prost::Message;

/// The response of `List`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPodResourcesResponse {
    /// The pods of the node that have resources.
    #[prost(message, repeated, tag = "1")]
    pub(crate) pod_resources: Vec<PodResources>,
}

/// The resources of one pod.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodResources {
    /// The pod's name.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    /// The resources of each container.
    #[prost(message, repeated, tag = "3")]
    pub(crate) containers: Vec<ContainerResources>,
}

/// The resources of one container.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerResources {
    /// The container's name.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// Its devices, those of each resource together.
    #[prost(message, repeated, tag = "2")]
    pub(crate) devices: Vec<ContainerDevices>,
    /// Its claims of dynamic resource allocation (DRA).
    #[prost(message, repeated, tag = "5")]
    pub(crate) dynamic_resources: Vec<DynamicResource>,
}

/// Devices of one resource.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerDevices {
    /// The resource, such as `nvidia.com/gpu`.
    #[prost(string, tag = "1")]
    pub(crate) resource_name: String,
    /// The device ids of the plugin.
    #[prost(string, repeated, tag = "2")]
    pub(crate) device_ids: Vec<String>,
}

/// A claim whose devices the container uses.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DynamicResource {
    /// What each driver allocated for the claim.
    #[prost(message, repeated, tag = "4")]
    pub(crate) claim_resources: Vec<ClaimResource>,
}

/// A device that is allocated for a claim.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClaimResource {
    /// The driver, such as `gpu.nvidia.com`.
    #[prost(string, tag = "2")]
    pub(crate) driver_name: String,
    /// The device's name in its pool.
    #[prost(string, tag = "4")]
    pub(crate) device_name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length-delimited field of a message: its number, its length, and its content.
    fn encode_field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, content.len() as u8];
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn kubelet_response_has_claims_of_dynamic_resources() {
        let cdi = encode_field(1, b"k8s.gpu.nvidia.com/claim=0b1c-gpu-3");
        let resource = [
            encode_field(1, &cdi),
            encode_field(2, b"gpu.nvidia.com"),
            encode_field(3, b"gpu-0417"),
            encode_field(4, b"gpu-3"),
            encode_field(5, b"a-share"),
        ]
        .concat();
        let claim =
            [encode_field(2, b"one-gpu"), encode_field(3, b"ml"), encode_field(4, &resource)]
                .concat();
        let container = [encode_field(1, b"trainer"), encode_field(5, &claim)].concat();
        let decoded = ContainerResources::decode(&*container).unwrap();
        let resource = &decoded.dynamic_resources[0].claim_resources[0];
        assert_eq!((&*resource.driver_name, &*resource.device_name), ("gpu.nvidia.com", "gpu-3"));
    }

    #[test]
    fn kubelet_response_is_decoded_and_unknown_fields_are_skipped() {
        let device = [
            encode_field(1, b"nvidia.com/gpu"),
            encode_field(2, b"GPU-a"),
            encode_field(2, b"GPU-b"),
        ]
        .concat();
        // Memory, packed CPU numbers, topology of a device: fields that are not read.
        let unknown =
            [encode_field(9, b"\x0a\x01x"), encode_field(3, &[0, 1, 2]), vec![0x40, 0x96, 0x01]]
                .concat();
        let container = [encode_field(1, b"trainer"), encode_field(2, &device), unknown].concat();
        let pod =
            [encode_field(1, b"llama-0"), encode_field(2, b"ml"), encode_field(3, &container)]
                .concat();
        let answer = ListPodResourcesResponse::decode(&*encode_field(1, &pod)).unwrap();
        let [pod] = answer.pod_resources.as_slice() else { panic!("{answer:?}") };
        assert_eq!((&*pod.namespace, &*pod.name), ("ml", "llama-0"));
        assert_eq!(pod.containers[0].name, "trainer");
        assert_eq!(pod.containers[0].devices[0].resource_name, "nvidia.com/gpu");
        assert_eq!(pod.containers[0].devices[0].device_ids, ["GPU-a", "GPU-b"]);
        assert!(ListPodResourcesResponse::decode(&[0x0a, 0x20, 1][..]).is_err(), "a torn message");
    }
}
