//! This box: the node sampler in this process feeds the owner, with no daemon and no configuration.

use gaunt_node::{Options, Sampler};
use gaunt_schema::{Batch, Clock, Delivery, Dialect, Page, Rejected, Target, TargetId};
use tokio::{sync::mpsc, task::AbortHandle};

/// The only target.
const THIS_BOX: TargetId = TargetId(0);

/// A running sampler and the task that passes its reports on. Dropping it ends both.
pub(super) struct Sampling {
    _sampler: Sampler,
    passing: AbortHandle,
}

impl Drop for Sampling {
    fn drop(&mut self) {
        self.passing.abort();
    }
}

/// Starts sampling this box.
pub(super) async fn start(
    options: Options,
    inbox: mpsc::Sender<Delivery>,
    clock: Clock,
) -> anyhow::Result<Sampling> {
    let target = Target {
        id: THIS_BOX,
        address: "this box".into(),
        node: None,
        origin: "this process".into(),
    };
    inbox.send(Delivery::Targets(vec![target])).await?;
    let sampler = Sampler::start(options);
    let mut reports = sampler.watch();
    let passing = tokio::spawn(async move {
        while reports.changed().await.is_ok() {
            let report = (**reports.borrow_and_update()).clone();
            let page =
                Page { report, dialect: Dialect::Gaunt, bytes: 0, rejected: Rejected::default() };
            let batch =
                Batch { target: THIS_BOX, at: clock(), duration_ms: 0.0, outcome: Ok(page) };
            if inbox.send(Delivery::Batch(batch)).await.is_err() {
                return;
            }
        }
    });
    Ok(Sampling { _sampler: sampler, passing: passing.abort_handle() })
}
