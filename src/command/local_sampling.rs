//! Local sampling: the node sampler in this process feeds the engine, without a daemon or configuration.

use gaunt_node::{NodeSampler, SamplerOptions};
use gaunt_schema::{
    Batch, ClockFn, Delivery, Dialect, RejectionCounts, ScrapeTarget, ScrapedPage, TargetId,
};
use tokio::{sync::mpsc, task::AbortHandle};

/// The only target.
const THIS_BOX: TargetId = TargetId(0);

/// A running sampler and the task that forwards its reports. Dropping it ends both.
pub(super) struct LocalSampling {
    _sampler: NodeSampler,
    forwarder: AbortHandle,
}

impl Drop for LocalSampling {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

/// Starts to sample this machine.
pub(super) async fn start_sampling(
    options: SamplerOptions,
    inbox: mpsc::Sender<Delivery>,
    clock: ClockFn,
) -> anyhow::Result<LocalSampling> {
    let target = ScrapeTarget {
        id: THIS_BOX,
        address: "this box".into(),
        node: None,
        origin: "this process".into(),
    };
    inbox.send(Delivery::Targets(vec![target])).await?;
    let sampler = NodeSampler::start_sampling(options);
    let mut reports = sampler.watch_reports();
    let forwarder = tokio::spawn(async move {
        while reports.changed().await.is_ok() {
            let report = (**reports.borrow_and_update()).clone();
            let page = ScrapedPage {
                report,
                dialect: Dialect::Gaunt,
                bytes: 0,
                rejected: RejectionCounts::default(),
            };
            let batch =
                Batch { target: THIS_BOX, at: clock(), duration_ms: 0.0, outcome: Ok(page) };
            if inbox.send(Delivery::Batch(batch)).await.is_err() {
                return;
            }
        }
    });
    Ok(LocalSampling { _sampler: sampler, forwarder: forwarder.abort_handle() })
}
