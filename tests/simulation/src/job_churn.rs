//! Memory of jobs that ended: tens of thousands of them leave next to nothing behind.

use std::time::Duration;

use gaunt_engine::{Engine, EngineOptions};
use gaunt_schema::{
    Batch, Delivery, Device, Dialect, Reading, RejectionCounts, Report, SanitizedText,
    ScrapeTarget, ScrapedPage, TargetId, UnixMs, catalogue::gpu,
};

use crate::{BEGAN, bytes_in_use};

/// The GPUs of the only node, each of which has a job of its own, and the ticks of a job.
const GPUS: u32 = 8;
const JOB_TICKS: u32 = 2;

const PERIOD: Duration = Duration::from_secs(10);

/// Jobs between two measurements, and measurements.
const JOBS: u32 = 10_000;
const PARTS: usize = 4;

/// The most bytes of an engine that jobs came through. The maps that hold jobs for some time grow and shrink between 1 and
/// 3.8 MB, of which 600,000 jobs left 80 kB: 100 bytes a job would be beyond it after 40,000.
const MAX_BYTES: i64 = 4_000_000;

fn build_page(tick: u32) -> ScrapedPage {
    let mut report = Report { node: Some(SanitizedText::new("gpu01")), ..Report::default() };
    for number in 0..GPUS {
        let device = report.ensure_device(Device::new_gpu(number));
        report.push(device, gpu::UTILIZATION, Reading::of(0.9));
        report.push(device, gpu::POWER, Reading::of(600.0 + f64::from((tick + number) % 11)));
        let job = format!("job-{number}-{:08}", (tick + number) / JOB_TICKS);
        report.add_info(device, gpu::JOB_INFO, &[("job", &job)]);
    }
    ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 1, rejected: RejectionCounts::default() }
}

/// Passes so many jobs through the engine from this tick on; returns the tick after them.
fn pass_jobs(engine: &mut Engine, from: u32) -> u32 {
    let end = from + JOBS * JOB_TICKS / GPUS;
    for tick in from..end {
        let at = BEGAN + PERIOD * (tick + 1);
        let batch =
            Batch { target: TargetId(0), at, duration_ms: 1.0, outcome: Ok(build_page(tick)) };
        engine.ingest_delivery(Delivery::Batch(batch));
        engine.run_tick(at);
    }
    end
}

#[test]
fn jobs_that_ended_leave_little_memory_behind() {
    let mut engine = Engine::new(EngineOptions { period: PERIOD, ..EngineOptions::default() });
    engine.run_tick(UnixMs(BEGAN.0));
    let target = ScrapeTarget {
        id: TargetId(0),
        address: "10.0.0.1:9770".into(),
        node: None,
        origin: "test".into(),
    };
    engine.ingest_delivery(Delivery::Targets(vec![target]));
    let before = bytes_in_use();
    let mut tick = 0;
    let bytes = [(); PARTS].map(|()| {
        tick = pass_jobs(&mut engine, tick);
        bytes_in_use() as i64 - before as i64
    });
    println!("bytes after each {JOBS} jobs: {bytes:?}");
    assert!(bytes.into_iter().all(|bytes| bytes < MAX_BYTES), "{bytes:?}");
}
