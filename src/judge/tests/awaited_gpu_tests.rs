//! Tests of a GPU without profiling counters that all others of its job wait for.
//!
//! That the others do less is also known from the time before, where a counter of energy and a temperature show it.

use gaunt_schema::{Device, Dialect, FindingKind, Report, Severity, catalogue::gpu};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

const GPUS: u32 = 8;
const ONSET: i64 = 240;

/// A node of a job whose GPUs draw this share of their usual power since the onset.
fn page(second: i64, share: impl Fn(u32) -> f64) -> Report {
    let mut page = node_report("gpu001");
    for index in 0..GPUS {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        let share = if second < ONSET { 1.0 } else { share(index) };
        let wobble = ((second + i64::from(index)) * 7 % 5) as f64 * 4.0;
        for (metric, value) in [
            (gpu::UTILIZATION, 1.0),
            (gpu::POWER, (600.0 + wobble) * share),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::SM_CLOCK, 1.7e9),
            (gpu::MEMORY_USED, 60e9),
            (gpu::MEMORY_TOTAL, 80e9),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    page
}

/// The GPUs that are told as stragglers, with how severe that is.
fn told_stragglers(fixture: &TargetFixture) -> Vec<(String, Severity)> {
    let open = fixture.judge.open_findings().into_iter();
    open.filter(|finding| finding.kind == FindingKind::ComputeStraggler)
        .map(|finding| (finding.id.clone(), finding.severity))
        .collect()
}

/// The same of GPUs whose power is all that is known.
fn stragglers(share: fn(u32) -> f64) -> Vec<(String, Severity)> {
    let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
    fixture.run(ONSET + 150, |second, _| page(second, share));
    told_stragglers(&fixture)
}

#[test]
fn gpu_that_works_on_while_all_others_wait_is_a_warning() {
    let wanted = [("compute_straggler/gpu001/2".to_owned(), Severity::Warning)];
    assert_eq!(stragglers(|index| if index == 2 { 1.0 } else { 0.65 }), wanted);
}

#[test]
fn gpu_of_a_model_that_nobody_knows_is_told_by_how_its_power_changes() {
    let without_limit = |second, _: usize| {
        let mut page = page(second, |index| if index == 2 { 1.0 } else { 0.65 });
        page.samples.retain(|sample| sample.metric != gpu::POWER_LIMIT);
        page
    };
    let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
    fixture.run(ONSET + 150, without_limit);
    let wanted = [("compute_straggler/gpu001/2".to_owned(), Severity::Warning)];
    assert_eq!(told_stragglers(&fixture), wanted);
}

#[test]
fn gpus_that_differ_among_themselves_or_all_do_less_wait_for_nobody() {
    assert_eq!(stragglers(|index| if index < 2 { 1.0 } else { 0.65 }), [], "two work on");
    assert_eq!(stragglers(|_| 0.65), [], "all do less");
    assert_eq!(
        stragglers(|index| if index == 2 { 1.0 } else { 0.2 + 0.08 * f64::from(index) }),
        []
    );
    assert_eq!(stragglers(|index| if index == 2 { 1.0 } else { 0.85 }), [], "hardly");
}

/// The same with a counter of energy, and with GPUs that are warmer the more they draw if the temperature tells it too.
fn unchanged_gpus(share: fn(u32) -> f64, by_temperature: bool) -> Vec<(String, Severity)> {
    let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
    fixture.run(ONSET + 120, |second, _| {
        let mut page = page(second, share);
        for index in 0..GPUS {
            let device = || Device::new_gpu(index);
            let (before, since) = (second.min(ONSET), (second - ONSET).max(0));
            let joules = 600.0 * (before as f64 + since as f64 * share(index));
            let wobble = (second * 7 + i64::from(index)) % 5;
            push_reading(&mut page, device(), gpu::ENERGY, joules + wobble as f64);
            let share = if second < ONSET { 1.0 } else { share(index) };
            let celsius = if by_temperature { 35.0 + 30.0 * share } else { 65.0 };
            push_reading(&mut page, device(), gpu::TEMPERATURE, celsius);
        }
        page
    });
    told_stragglers(&fixture)
}

#[test]
fn gpu_that_goes_on_as_before_while_its_job_does_less_is_a_warning() {
    let wanted = [("compute_straggler/gpu001/2".to_owned(), Severity::Warning)];
    assert_eq!(unchanged_gpus(|index| if index == 2 { 1.0 } else { 0.85 }, true), wanted);
}

#[test]
fn one_signal_or_two_unchanged_gpus_or_more_work_show_no_straggler() {
    assert_eq!(unchanged_gpus(|index| if index == 2 { 1.0 } else { 0.85 }, false), []);
    assert_eq!(unchanged_gpus(|index| if index < 2 { 1.0 } else { 0.85 }, true), []);
    assert_eq!(unchanged_gpus(|_| 0.85, true), [], "all do less");
    assert_eq!(unchanged_gpus(|index| if index == 2 { 1.1 } else { 1.0 }, true), [], "more work");
}

#[test]
fn gpu_that_works_on_after_all_others_stop_is_no_straggler() {
    let share = |index| if index == 2 { 1.0 } else { 0.0 };
    let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
    fixture.run(ONSET + 400, |second, _| {
        let mut page = page(second, share);
        for index in 0..GPUS {
            let share = if second < ONSET { 1.0 } else { share(index) };
            for (metric, value) in [
                (gpu::UTILIZATION, share),
                (gpu::SM_ACTIVE, 0.8 * share),
                (gpu::DRAM_ACTIVE, 0.5 * share),
                (gpu::POWER, 100.0 + 500.0 * share),
            ] {
                push_reading(&mut page, Device::new_gpu(index), metric, value);
            }
        }
        page
    });
    assert_eq!(told_stragglers(&fixture), []);
}
