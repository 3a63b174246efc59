//! Rivals for a node's name: two targets that report the same node, of which one at most tells the truth.
//!
//! The target that reported the node before keeps the name, also after a restart: the addresses are remembered. Without
//! a memory the first page decides. Both targets are flagged, because nobody knows which one is mistaken.

use std::{collections::HashMap, time::Duration};

use gaunt_schema::{Dialect, SanitizedText, UnixMs};

use super::{Cluster, cluster_node::host_of, tracked_target::TrackedTarget};

/// How long the target in use stays flagged after the last page of its rival. A rival is scraped every 15 s at least.
const FLAGGED_FOR: Duration = Duration::from_mins(1);

/// The addresses of each node before the start.
#[derive(Clone, Debug, Default)]
pub(super) struct RememberedAddresses(HashMap<SanitizedText, Vec<SanitizedText>>);

impl Cluster {
    /// Remembers which node each address reported before the start.
    pub fn remember_addresses(
        &mut self,
        nodes: impl IntoIterator<Item = (SanitizedText, SanitizedText)>,
    ) {
        for (address, node) in nodes {
            self.remembered.0.entry(node).or_default().push(address);
        }
    }

    /// The address of another target that reported this node before the start, and may do so again; none if this target
    /// did too.
    pub(super) fn remembered_rival(
        &self,
        index: usize,
        name: &SanitizedText,
        dialect: Dialect,
    ) -> Option<SanitizedText> {
        let target = &self.targets[index].target;
        let addresses = self.remembered.0.get(name)?;
        let host = host_of(&target.address);
        // What the operator names, or another exporter of the same host, is believed.
        let is_known = target.node.is_some()
            || dialect.is_model_server()
            || addresses.iter().any(|address| host_of(address) == host);
        if is_known {
            return None;
        }
        let may_report = |tracked: &&TrackedTarget| {
            addresses.contains(&tracked.target.address)
                && tracked.dialect.is_none_or(|known| known == dialect)
                && tracked.page_name.as_ref().is_none_or(|reported| reported == name)
        };
        self.targets.iter().find(may_report).map(|rival| rival.target.address.clone())
    }

    /// Flags the target in use, and returns the flag of its rival, whose page is rejected.
    pub(super) fn reject_rival(
        &mut self,
        index: usize,
        used: &SanitizedText,
        name: &SanitizedText,
        at: UnixMs,
    ) -> SanitizedText {
        let address = self.targets[index].target.address.clone();
        let flag = format!(
            "{used} and {address} both report node {name}; only the first is used: remove one, or \
             name them differently with NODE=ADDRESS"
        );
        if let Some(used) = self.targets.iter_mut().find(|it| it.target.address == *used) {
            used.rival = Some((address, at));
        }
        SanitizedText::new(&flag)
    }
}

impl TrackedTarget {
    /// The flag of the target in use while it has a rival.
    pub(super) fn rival_flag(&self, at: UnixMs) -> Option<SanitizedText> {
        let (rival, seen) = self.rival.as_ref()?;
        let address = &self.target.address;
        (at.duration_since(*seen) <= FLAGGED_FOR).then(|| {
            SanitizedText::new(&format!(
                "{rival} also reports the node of {address}, and only {address} is used: remove one, or \
                 name them with NODE=ADDRESS"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Device, Reading, catalogue::gpu};

    use super::*;
    use crate::tests::{new_cluster, node_report, send_page};

    const NODE: &str = "gpu-001";

    /// A cluster of the machine, of another one and of an impostor.
    fn three_targets() -> Cluster {
        new_cluster(&[
            (1, "10.0.0.1:9770", None),
            (2, "10.0.0.2:9770", None),
            (3, "10.0.0.9:9770", None),
        ])
    }

    fn send_load(cluster: &mut Cluster, target: u32, at: i64, name: &str, load: f64) {
        let samples = [(Device::new_gpu(0), gpu::UTILIZATION, Reading::of(load))];
        send_page(cluster, target, at, Dialect::Gaunt, node_report(name, None, &samples));
    }

    fn load_of(cluster: &Cluster) -> Option<f64> {
        let (_, node) = cluster.node_by_name(&SanitizedText::new(NODE))?;
        let row = *node.device_rows(gaunt_schema::DeviceClass::Gpu).first()?;
        cluster.current_value(gpu::UTILIZATION, row)
    }

    fn flag_of(cluster: &Cluster, index: usize) -> &str {
        cluster.tracked_targets()[index].flag.as_deref().unwrap_or_default()
    }

    #[test]
    fn impostor_is_not_believed_after_a_restart_in_whatever_order_pages_come() {
        for order in [[1, 3], [3, 1]] {
            let mut cluster = three_targets();
            let before = [("10.0.0.1:9770", NODE), ("10.0.0.2:9770", "gpu-002")];
            cluster.remember_addresses(before.map(|(address, node)| (address.into(), node.into())));
            for round in 0..3 {
                for (place, target) in (0..).zip(order) {
                    let load = if target == 1 { 0.9 } else { 0.1 };
                    send_load(&mut cluster, target, 1_000 + round * 1_000 + place, NODE, load);
                }
            }
            assert_eq!(load_of(&cluster), Some(0.9), "{order:?}");
            assert!(
                flag_of(&cluster, 2)
                    .contains("10.0.0.1:9770 and 10.0.0.9:9770 both report node gpu-001")
            );
            assert!(
                flag_of(&cluster, 0)
                    .contains("10.0.0.9:9770 also reports the node of 10.0.0.1:9770")
            );
            assert_eq!(flag_of(&cluster, 1), "");
        }
    }

    #[test]
    fn name_is_free_once_its_owner_reports_another_one_or_is_no_target() {
        let mut cluster = three_targets();
        cluster.remember_addresses([("10.0.0.1:9770".into(), NODE.into())]);
        send_load(&mut cluster, 3, 1_000, NODE, 0.1);
        assert_eq!(load_of(&cluster), None, "its owner was not read yet");
        send_load(&mut cluster, 1, 1_001, "gpu-007", 0.5);
        send_load(&mut cluster, 3, 2_000, NODE, 0.1);
        assert_eq!((load_of(&cluster), flag_of(&cluster, 2)), (Some(0.1), ""));
        let mut cluster = three_targets();
        cluster.remember_addresses([("10.0.0.77:9770".into(), NODE.into())]);
        send_load(&mut cluster, 3, 1_000, NODE, 0.1);
        assert_eq!(load_of(&cluster), Some(0.1), "a node that moved");
        // Another exporter of the same host.
        let mut cluster = three_targets();
        cluster.remember_addresses([("10.0.0.1:9400".into(), NODE.into())]);
        send_load(&mut cluster, 1, 1_000, NODE, 0.4);
        assert_eq!(load_of(&cluster), Some(0.4));
    }

    #[test]
    fn flag_of_the_target_in_use_ends_after_its_rival() {
        let mut cluster = three_targets();
        send_load(&mut cluster, 1, 1_000, NODE, 0.9);
        send_load(&mut cluster, 3, 1_001, NODE, 0.1);
        send_load(&mut cluster, 1, 2_000, NODE, 0.9);
        assert!(flag_of(&cluster, 0).contains("also reports"), "{}", flag_of(&cluster, 0));
        send_load(&mut cluster, 1, 63_000, NODE, 0.9);
        assert_eq!(flag_of(&cluster, 0), "");
    }
}
