//! Samples that a real node reports beyond the model, so that a ring page is as long, and changes as much, as one of
//! gaunt-node's.

use gaunt_schema::{
    Device, DeviceClass, MetricId, MetricSample, Report,
    catalogue::{ethernet, gpu, gpu_health as health, gpu_parts as parts, host, port},
};

/// Ratios that follow SM activity, each with its integral and its factor.
const FOLLOWING: [(MetricId, MetricId, f64); 5] = [
    (gpu::SM_OCCUPANCY, gpu::SM_OCCUPANCY_SECONDS, 0.31),
    (gpu::GRAPHICS_ACTIVE, gpu::GRAPHICS_ACTIVE_SECONDS, 0.98),
    (gpu::FP64_ACTIVE, gpu::FP64_ACTIVE_SECONDS, 0.02),
    (gpu::FP32_ACTIVE, gpu::FP32_ACTIVE_SECONDS, 0.17),
    (gpu::FP16_ACTIVE, gpu::FP16_ACTIVE_SECONDS, 0.11),
];

/// Steps by which sensors differ from page to page; neighbouring steps differ.
const STEPS: [f64; 4] = [0.0, 2.0, 1.0, 3.0];

/// Extends the report of page number `frame`; pages are `period` seconds apart.
pub(super) fn add_extra_samples(report: &mut Report, frame: u64, period: f64) {
    let step = STEPS[frame as usize % STEPS.len()];
    let seconds = frame as f64 * period;
    vary_sensors(report, step, seconds);
    // Link traffic is reported by the totals of the GPU.
    let of_link =
        |sample: &MetricSample| report.devices[sample.device as usize].class == DeviceClass::Nvlink;
    let samples = report.samples.iter().filter(|sample| !of_link(sample));
    report.samples = samples.copied().collect();
    for device in 0..report.devices.len() {
        match report.devices[device].class {
            DeviceClass::Gpu => add_gpu_samples(report, device as u32, step, seconds),
            DeviceClass::Port => {
                for (metric, rate) in [
                    (port::UNICAST_RECEIVE_PACKETS, 2.1e6),
                    (port::UNICAST_TRANSMIT_PACKETS, 2.2e6),
                    (port::MULTICAST_RECEIVE_PACKETS, 1.0),
                    (port::MULTICAST_TRANSMIT_PACKETS, 0.4),
                ] {
                    report.push(device as u32, metric, (8.8e12 + rate * seconds).floor());
                }
            }
            DeviceClass::Netdev if report.devices[device] != Device::new_netdev("bond0") => {
                for (metric, rate) in [
                    (ethernet::PHY_BITS, 4e11),
                    (ethernet::FEC_CORRECTED, 12.0),
                    (ethernet::LANE_ERRORS_0, 310.0),
                    (ethernet::LANE_ERRORS_1, 280.0),
                    (ethernet::LANE_ERRORS_2, 330.0),
                    (ethernet::LANE_ERRORS_3, 290.0),
                ] {
                    report.push(device as u32, metric, (5.5e13 + rate * seconds).floor());
                }
            }
            _ => {}
        }
    }
    report.push(0, host::LOAD, 17.0 + step / 7.0);
    report.push(0, host::MEMORY_CACHED, 3.1e11 + step * 4_096.0 * 977.0);
}

/// Cuts all pages of a node to this number of samples: first those that change on no page, the last ones first.
pub(super) fn cut_samples(pages: &mut [Report], samples: usize) {
    let Some((first, others)) = pages.split_first() else { return };
    let is_constant = |sample: &MetricSample| {
        let is_equal = |other: &MetricSample| other == sample;
        others.iter().all(|page| page.samples.iter().any(is_equal))
    };
    let surplus = first.samples.len().saturating_sub(samples);
    let constant = first.samples.iter().rev().filter(|sample| is_constant(sample)).take(surplus);
    let removed: Vec<(MetricId, u32)> =
        constant.map(|sample| (sample.metric, sample.device)).collect();
    for page in pages {
        page.samples.retain(|sample| !removed.contains(&(sample.metric, sample.device)));
    }
}

/// Sensors and shares that change almost always.
fn vary_sensors(report: &mut Report, step: f64, seconds: f64) {
    for sample in &mut report.samples {
        let Some(value) = sample.reading.value() else { continue };
        let changed = match sample.metric {
            gpu::UTILIZATION | gpu::MEMORY_ACTIVITY => (value - step / 100.0).max(0.0),
            gpu::TEMPERATURE => value + step,
            gpu::SM_CLOCK => value - 15e6 * step,
            gpu::MEMORY_USED => value + 2_097_152.0 * step,
            gpu::MEMORY_FREE => value - 2_097_152.0 * step,
            // The kernel's own traffic, which is close to zero on a rail.
            host::NETDEV_RECEIVE_BYTES | host::NETDEV_TRANSMIT_BYTES => value + 912.0 * seconds,
            host::NETDEV_RECEIVE_PACKETS | host::NETDEV_TRANSMIT_PACKETS => value + 3.0 * seconds,
            _ => continue,
        };
        sample.reading = ((changed * 1e4).round() / 1e4).into();
    }
}

fn add_gpu_samples(report: &mut Report, device: u32, step: f64, seconds: f64) {
    let value_of = |metric| {
        let sample =
            report.samples.iter().find(|sample| sample.device == device && sample.metric == metric);
        sample.and_then(|sample| sample.reading.value()).unwrap_or_default()
    };
    let (active, integral, watts) =
        (value_of(gpu::SM_ACTIVE), value_of(gpu::SM_ACTIVE_SECONDS), value_of(gpu::POWER));
    for (ratio, total, share) in FOLLOWING {
        report.push(device, ratio, ((active * share - step / 1e3).max(0.0) * 1e4).round() / 1e4);
        report.push(device, total, (integral * share * 1e3).floor() / 1e3);
    }
    for (number, recent) in (1..).zip(gpu::RECENT_CLOCK_EVENTS) {
        report.push(device, recent, f64::from(number) * 3.0 + step);
    }
    report.push(device, health::VIOLATION_POWER, (3.3e4 + 0.11 * seconds * 1e3).floor() / 1e3);
    let gpu = report.devices[device as usize].key[0].parse().unwrap_or_default();
    let process =
        report.ensure_device(Device::new_gpu_part(DeviceClass::Process, gpu, 40_000 + 131 * gpu));
    report.push(process, parts::PROCESS_MEMORY, 7.3e10 + 2_097_152.0 * step);
    report.push(process, parts::PROCESS_SM, 0.93 + step / 1e2);
    report.push(device, gpu::SM_BELOW_5, (9.1e4 + 0.07 * seconds * 1e3).floor() / 1e3);
    report.push(device, gpu::UTILIZATION_BELOW_5, (7.7e4 + 0.02 * seconds * 1e3).floor() / 1e3);
    report.push(device, gpu::SM_ACTIVE_MIN, (active * 0.2 + step / 1e3).min(1.0));
    report.push(device, gpu::SM_ACTIVE_MAX, (active * 1.3 - step / 1e3).clamp(0.0, 1.0));
    report.push(device, gpu::POWER_MIN, (watts * 0.7).round() + step);
    report.push(device, gpu::POWER_MAX, (watts * 1.2).round() - step);
}
