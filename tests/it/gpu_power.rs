//! The power of a GPU between two ticks of gaunt-node, from a driver that lacks the field of the present power.

use std::time::Duration;

use gaunt_schema::{Device, catalogue::gpu};

use crate::gpu_sampling::{FakeDriverSampler, gpu_scenario, reading_value};

/// The energy counter is no source of power over a fraction of a second: it is renewed in steps.
#[test]
fn extremes_of_power_need_no_field_of_newer_drivers_and_no_energy_counter() {
    let node = FakeDriverSampler::start_scenario(
        &gpu_scenario(
            "energy_millijoules = [[0.0, 1000]]\n\
             power_milliwatts = [[0.0, 300000], [2.0, 90000], [2.5, 300000]]\n",
        ),
        |options, _| options.period = Duration::from_secs(1),
    );
    let device = Device::new_gpu(0);
    let after = node.wait_for_report("the lowest power", |report| {
        reading_value(report, &device, gpu::POWER_MIN) == Some(90.0)
    });
    assert_eq!(reading_value(&after, &device, gpu::POWER_MAX), Some(300.0));
}
