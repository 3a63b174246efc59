//! Screen samples: the metrics that have history, for a store that keeps them longer. They have the names and labels of
//! gaunt-node's page, whichever exporter reported them.

use gaunt_engine::NodeHistoryReadings;
use gaunt_store::StoreStep;
use tokio::task::{JoinError, spawn_blocking};

use crate::answer_source::AnswerSource;

/// The most labels of a device, with its node and a fixed label.
const MAX_LABELS: usize = 8;

/// Adds the current values of all nodes to a step, some nodes at a time: what is asked of the engine meanwhile waits only
/// for these. An engine that has stopped has none.
pub(super) async fn fill_screens(
    mut step: StoreStep,
    source: &AnswerSource,
) -> Result<StoreStep, JoinError> {
    let (AnswerSource::Engine(engine) | AnswerSource::EngineWithPast(engine, _)) = source else {
        return Ok(step);
    };
    let mut next = Some(0);
    while let Some(from) = next
        && let Ok(values) = engine.history_readings(from).await
    {
        next = values.next;
        let filled = spawn_blocking(move || {
            for node in &values.nodes {
                push_node(node, |name, labels, value| {
                    step.push_screen_sample(name, labels, value);
                });
            }
            step
        });
        step = filled.await?;
    }
    Ok(step)
}

/// The samples of one node.
fn push_node(node: &NodeHistoryReadings, mut push: impl FnMut(&str, &[(&str, &str)], f64)) {
    for (device, values) in &node.devices {
        let mut labels = Vec::with_capacity(MAX_LABELS);
        labels.push(("node", node.node.as_str()));
        labels.extend(device.key_labels().map(|(name, value)| (name, value.as_str())));
        let device_labels = labels.len();
        for (metric, value) in values {
            let row = metric.catalogue_row();
            labels.truncate(device_labels);
            labels.extend(row.tag);
            push(row.name, &labels, *value);
        }
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{
        Device, MetricId,
        catalogue::{gpu, port},
    };

    use super::*;

    #[test]
    fn samples_have_the_names_and_labels_of_the_page_of_the_node() {
        let tagged = MetricId::all_ids()
            .find(|metric| metric.catalogue_row().history && metric.catalogue_row().tag.is_some());
        let tagged = tagged.expect("a metric with history has a fixed label");
        let node = NodeHistoryReadings {
            node: "gpu003".into(),
            devices: vec![
                (Device::new_gpu(5), vec![(gpu::POWER, 412.5), (tagged, 1.0), (gpu::POWER, 3.0)]),
                (Device::new_port("mlx5_1", "1"), vec![(port::RATE, 50e9)]),
            ],
        };
        let mut lines = Vec::new();
        push_node(&node, |name, labels, value| {
            let labels: Vec<String> =
                labels.iter().map(|(name, it)| format!("{name}={it}")).collect();
            lines.push(format!("{name} {} {value}", labels.join(",")));
        });
        let (name, (label, value)) =
            (tagged.catalogue_row().name, tagged.catalogue_row().tag.unwrap());
        assert_eq!(
            lines,
            [
                "gaunt_gpu_power_watts node=gpu003,gpu=5 412.5".to_owned(),
                format!("{name} node=gpu003,gpu=5,{label}={value} 1"),
                "gaunt_gpu_power_watts node=gpu003,gpu=5 3".to_owned(),
                "gaunt_port_rate_bytes_per_second node=gpu003,device=mlx5_1,port=1 50000000000"
                    .to_owned(),
            ]
        );
    }
}
