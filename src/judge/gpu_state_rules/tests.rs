//! Tests of the GPU state rules, row by row.

use GpuState::{
    Communicating, Computing, DataStarved, Idle, IdleAllocated, LaunchBound, MemoryBound,
    Throttled, Unknown, Waiting,
};
use gaunt_schema::GpuState;

use super::{GpuSignals, Thresholds, classify_state};

fn classify_fresh(signals: &GpuSignals) -> GpuState {
    classify_state(signals, Unknown, &Thresholds::default())
}

/// A GPU of a job group with profiling counters.
fn profiled_signals(utilization: f64, tensor: f64, sm: f64, dram: f64, comm: f64) -> GpuSignals {
    GpuSignals {
        allocated: Some(true),
        has_peers: true,
        utilization: Some(utilization),
        active: Some(1.0),
        tensor: Some(tensor),
        sm: Some(sm),
        dram: Some(dram),
        comm: Some(comm),
        ..GpuSignals::default()
    }
}

/// A GPU of a job group without them.
fn unprofiled_signals(utilization: f64, power: f64, memory: f64, comm: f64) -> GpuSignals {
    GpuSignals {
        allocated: Some(true),
        has_peers: true,
        utilization: Some(utilization),
        active: Some(1.0),
        power: Some(power),
        memory: Some(memory),
        comm: Some(comm),
        clock: Some(0.97),
        ..GpuSignals::default()
    }
}

#[test]
fn rule_rows_with_profiling_counters() {
    let pressed = |signals: GpuSignals| GpuSignals { io_pressure: Some(0.4), ..signals };
    let pegged = |signals: GpuSignals| GpuSignals { busiest_cpu: Some(0.99), ..signals };
    let free = |signals: GpuSignals| GpuSignals { allocated: Some(false), ..signals };
    let loading = |signals: GpuSignals| GpuSignals { pcie: Some(3e9), ..signals };
    let alone = |signals: GpuSignals| GpuSignals { has_peers: false, ..signals };
    let starving = profiled_signals(0.3, 0.05, 0.15, 0.1, 0.01);
    for (what, signals, state) in [
        ("tensor cores work", profiled_signals(1.0, 0.4, 0.6, 0.4, 0.1), Computing),
        ("multiprocessors work", profiled_signals(1.0, 0.0, 0.85, 0.3, 0.0), Computing),
        ("memory is the limit", profiled_signals(1.0, 0.1, 0.85, 0.65, 0.0), MemoryBound),
        ("data is moved", profiled_signals(1.0, 0.1, 0.2, 0.2, 0.5), Communicating),
        ("a collective spins", profiled_signals(1.0, 0.01, 0.1, 0.02, 0.01), Waiting),
        (
            "it spins with pressure on its host",
            pressed(profiled_signals(1.0, 0.01, 0.1, 0.02, 0.01)),
            Waiting,
        ),
        (
            "nobody to wait for, a pegged core",
            alone(pegged(profiled_signals(1.0, 0.01, 0.1, 0.02, 0.0))),
            LaunchBound,
        ),
        (
            "nobody to wait for, nothing else known",
            alone(profiled_signals(1.0, 0.01, 0.1, 0.02, 0.0)),
            Unknown,
        ),
        ("starving under pressure", pressed(starving), DataStarved),
        ("starving while loading", loading(starving), DataStarved),
        ("starving without a reason", starving, Unknown),
        ("little work, one core pegged", pegged(starving), DataStarved),
        (
            "half the work, one core pegged",
            pegged(profiled_signals(0.5, 0.01, 0.15, 0.1, 0.0)),
            LaunchBound,
        ),
        ("held and idle", profiled_signals(0.0, 0.0, 0.0, 0.0, 0.0), IdleAllocated),
        ("idle while its node sends", profiled_signals(0.0, 0.0, 0.0, 0.0, 0.5), IdleAllocated),
        ("free and idle", free(profiled_signals(0.0, 0.0, 0.0, 0.0, 0.0)), Idle),
        (
            "free and idle under pressure",
            free(pressed(profiled_signals(0.0, 0.0, 0.0, 0.0, 0.0))),
            Idle,
        ),
        ("in between", profiled_signals(1.0, 0.1, 0.5, 0.3, 0.1), Unknown),
    ] {
        assert_eq!(classify_fresh(&signals), state, "{what}");
    }
}

#[test]
fn rule_rows_without_profiling_counters() {
    let pressed = |signals: GpuSignals| GpuSignals { io_pressure: Some(0.4), ..signals };
    let switching = |signals: GpuSignals| GpuSignals { power_spread: Some(0.5), ..signals };
    let pegged = |signals: GpuSignals| GpuSignals { busiest_cpu: Some(0.99), ..signals };
    let alone = |signals: GpuSignals| GpuSignals { has_peers: false, ..signals };
    let slow = |signals: GpuSignals| GpuSignals { clock: Some(0.5), ..signals };
    for (what, signals, state) in [
        ("busy and hot", unprofiled_signals(0.98, 0.8, 0.4, 0.1), Computing),
        ("busy and hot with a slow clock", slow(unprofiled_signals(0.98, 0.8, 0.4, 0.1)), Unknown),
        ("memory is the limit", unprofiled_signals(0.98, 0.55, 0.7, 0.1), MemoryBound),
        ("data is moved", unprofiled_signals(0.98, 0.45, 0.2, 0.4), Communicating),
        ("a collective spins", unprofiled_signals(0.98, 0.3, 0.1, 0.01), Waiting),
        (
            "nobody to wait for, a pegged core",
            alone(pegged(unprofiled_signals(0.98, 0.3, 0.1, 0.0))),
            LaunchBound,
        ),
        (
            "on and off under pressure",
            pressed(switching(unprofiled_signals(0.4, 0.3, 0.1, 0.0))),
            DataStarved,
        ),
        ("on and off without a reason", switching(unprofiled_signals(0.4, 0.3, 0.1, 0.0)), Unknown),
        ("steady under pressure", pressed(unprofiled_signals(0.4, 0.3, 0.1, 0.0)), Unknown),
        ("held and idle", unprofiled_signals(0.0, 0.1, 0.0, 0.0), IdleAllocated),
    ] {
        assert_eq!(classify_fresh(&signals), state, "{what}");
    }
}

#[test]
fn thermal_slowdown_comes_first_and_a_power_cap_is_none() {
    let busy = profiled_signals(1.0, 0.4, 0.6, 0.4, 0.1);
    let hardware = GpuSignals { hw_slowdown: Some(0.9), ..busy };
    let software = GpuSignals { sw_thermal: Some(0.9), ..busy };
    assert_eq!(classify_fresh(&hardware), Throttled);
    assert_eq!(classify_fresh(&GpuSignals { clock_in_job: Some(0.7), ..software }), Throttled);
    assert_eq!(classify_fresh(&GpuSignals { clock_in_job: Some(0.95), ..software }), Computing);
    assert_eq!(classify_fresh(&software), Computing, "no clock to compare with");
    let idle = GpuSignals { utilization: Some(0.0), tensor: Some(0.0), sm: Some(0.0), ..hardware };
    assert_eq!(classify_fresh(&idle), IdleAllocated);
}

#[test]
fn pause_of_the_job_is_no_starvation() {
    let pause = GpuSignals {
        io_pressure: Some(0.5),
        active: Some(0.1),
        ..profiled_signals(0.1, 0.02, 0.05, 0.05, 0.0)
    };
    assert_eq!(classify_fresh(&pause), Unknown);
    assert_eq!(classify_fresh(&GpuSignals { since_active_again: Some(6.0), ..pause }), DataStarved);
    assert_eq!(classify_fresh(&GpuSignals { since_active_again: Some(60.0), ..pause }), Unknown);
}

#[test]
fn state_is_left_under_a_lower_limit() {
    let limits = Thresholds::default();
    let fading = profiled_signals(1.0, 0.21, 0.5, 0.3, 0.1);
    assert_eq!(classify_state(&fading, Unknown, &limits), Unknown);
    assert_eq!(classify_state(&fading, Computing, &limits), Computing);
    let faded = profiled_signals(1.0, 0.19, 0.5, 0.3, 0.1);
    assert_eq!(classify_state(&faded, Computing, &limits), Unknown);
}

#[test]
fn unknown_signals_decide_nothing() {
    assert_eq!(classify_fresh(&GpuSignals::default()), Unknown);
    let only_utilization =
        GpuSignals { utilization: Some(1.0), has_peers: true, ..GpuSignals::default() };
    assert_eq!(classify_fresh(&only_utilization), Unknown);
    let no_dram =
        GpuSignals { dram: None, comm: None, ..profiled_signals(1.0, 0.01, 0.1, 0.0, 0.0) };
    assert_eq!(classify_fresh(&no_dram), Waiting);
    let no_utilization =
        GpuSignals { utilization: None, ..profiled_signals(0.0, 0.01, 0.1, 0.0, 0.0) };
    assert_eq!(classify_fresh(&no_utilization), Unknown);
}
