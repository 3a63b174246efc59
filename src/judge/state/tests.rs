//! The table of states, row by row.

use GpuState::{
    Communicating, Computing, DataStarved, Idle, IdleAllocated, LaunchBound, MemoryBound,
    Throttled, Unknown, Waiting,
};
use gaunt_schema::GpuState;

use super::{Signals, Thresholds, classify};

fn verdict(signals: &Signals) -> GpuState {
    classify(signals, Unknown, &Thresholds::default())
}

/// A GPU of a gang with profiling counters.
fn profiled(utilization: f64, tensor: f64, sm: f64, dram: f64, comm: f64) -> Signals {
    Signals {
        allocated: Some(true),
        gang: true,
        utilization: Some(utilization),
        active: Some(1.0),
        tensor: Some(tensor),
        sm: Some(sm),
        dram: Some(dram),
        comm: Some(comm),
        ..Signals::default()
    }
}

/// A GPU of a gang without them.
fn plain(utilization: f64, power: f64, memory: f64, comm: f64) -> Signals {
    Signals {
        allocated: Some(true),
        gang: true,
        utilization: Some(utilization),
        active: Some(1.0),
        power: Some(power),
        memory: Some(memory),
        comm: Some(comm),
        clock: Some(0.97),
        ..Signals::default()
    }
}

#[test]
fn each_row_with_profiling_counters() {
    let pressed = |signals: Signals| Signals { io_pressure: Some(0.4), ..signals };
    let pegged = |signals: Signals| Signals { busiest_cpu: Some(0.99), ..signals };
    let free = |signals: Signals| Signals { allocated: Some(false), ..signals };
    let loading = |signals: Signals| Signals { pcie: Some(3e9), ..signals };
    let alone = |signals: Signals| Signals { gang: false, ..signals };
    let starving = profiled(0.3, 0.05, 0.15, 0.1, 0.01);
    for (what, signals, state) in [
        ("tensor cores work", profiled(1.0, 0.4, 0.6, 0.4, 0.1), Computing),
        ("multiprocessors work", profiled(1.0, 0.0, 0.85, 0.3, 0.0), Computing),
        ("memory is the limit", profiled(1.0, 0.1, 0.85, 0.65, 0.0), MemoryBound),
        ("data is moved", profiled(1.0, 0.1, 0.2, 0.2, 0.5), Communicating),
        ("a collective spins", profiled(1.0, 0.01, 0.1, 0.02, 0.01), Waiting),
        (
            "it spins with pressure on its host",
            pressed(profiled(1.0, 0.01, 0.1, 0.02, 0.01)),
            Waiting,
        ),
        (
            "nobody to wait for, a pegged core",
            alone(pegged(profiled(1.0, 0.01, 0.1, 0.02, 0.0))),
            LaunchBound,
        ),
        (
            "nobody to wait for, nothing else known",
            alone(profiled(1.0, 0.01, 0.1, 0.02, 0.0)),
            Unknown,
        ),
        ("starving under pressure", pressed(starving), DataStarved),
        ("starving while loading", loading(starving), DataStarved),
        ("starving without a reason", starving, Unknown),
        ("little work, one core pegged", pegged(starving), DataStarved),
        (
            "half the work, one core pegged",
            pegged(profiled(0.5, 0.01, 0.15, 0.1, 0.0)),
            LaunchBound,
        ),
        ("held and idle", profiled(0.0, 0.0, 0.0, 0.0, 0.0), IdleAllocated),
        ("free and idle", free(profiled(0.0, 0.0, 0.0, 0.0, 0.0)), Idle),
        ("free and idle under pressure", free(pressed(profiled(0.0, 0.0, 0.0, 0.0, 0.0))), Idle),
        ("in between", profiled(1.0, 0.1, 0.5, 0.3, 0.1), Unknown),
    ] {
        assert_eq!(verdict(&signals), state, "{what}");
    }
}

#[test]
fn each_row_without_profiling_counters() {
    let pressed = |signals: Signals| Signals { io_pressure: Some(0.4), ..signals };
    let switching = |signals: Signals| Signals { power_spread: Some(0.5), ..signals };
    let pegged = |signals: Signals| Signals { busiest_cpu: Some(0.99), ..signals };
    let alone = |signals: Signals| Signals { gang: false, ..signals };
    let slow = |signals: Signals| Signals { clock: Some(0.5), ..signals };
    for (what, signals, state) in [
        ("busy and hot", plain(0.98, 0.8, 0.4, 0.1), Computing),
        ("busy and hot with a slow clock", slow(plain(0.98, 0.8, 0.4, 0.1)), Unknown),
        ("memory is the limit", plain(0.98, 0.55, 0.7, 0.1), MemoryBound),
        ("data is moved", plain(0.98, 0.45, 0.2, 0.4), Communicating),
        ("a collective spins", plain(0.98, 0.3, 0.1, 0.01), Waiting),
        (
            "nobody to wait for, a pegged core",
            alone(pegged(plain(0.98, 0.3, 0.1, 0.0))),
            LaunchBound,
        ),
        ("on and off under pressure", pressed(switching(plain(0.4, 0.3, 0.1, 0.0))), DataStarved),
        ("on and off without a reason", switching(plain(0.4, 0.3, 0.1, 0.0)), Unknown),
        ("steady under pressure", pressed(plain(0.4, 0.3, 0.1, 0.0)), Unknown),
        ("held and idle", plain(0.0, 0.1, 0.0, 0.0), IdleAllocated),
    ] {
        assert_eq!(verdict(&signals), state, "{what}");
    }
}

#[test]
fn heat_comes_first_and_a_power_cap_is_no_heat() {
    let busy = profiled(1.0, 0.4, 0.6, 0.4, 0.1);
    let hardware = Signals { hw_slowdown: Some(0.9), ..busy };
    let software = Signals { sw_thermal: Some(0.9), ..busy };
    assert_eq!(verdict(&hardware), Throttled);
    assert_eq!(verdict(&Signals { clock_in_job: Some(0.7), ..software }), Throttled);
    assert_eq!(verdict(&Signals { clock_in_job: Some(0.95), ..software }), Computing);
    assert_eq!(verdict(&software), Computing, "no clock to compare with");
    let idle = Signals { utilization: Some(0.0), tensor: Some(0.0), sm: Some(0.0), ..hardware };
    assert_eq!(verdict(&idle), IdleAllocated);
}

#[test]
fn a_pause_of_the_job_is_no_starvation() {
    let pause = Signals {
        io_pressure: Some(0.5),
        active: Some(0.1),
        ..profiled(0.1, 0.02, 0.05, 0.05, 0.0)
    };
    assert_eq!(verdict(&pause), Unknown);
    assert_eq!(verdict(&Signals { since_active_again: Some(6.0), ..pause }), DataStarved);
    assert_eq!(verdict(&Signals { since_active_again: Some(60.0), ..pause }), Unknown);
}

#[test]
fn a_state_is_left_under_a_lower_cut() {
    let limits = Thresholds::default();
    let fading = profiled(1.0, 0.21, 0.5, 0.3, 0.1);
    assert_eq!(classify(&fading, Unknown, &limits), Unknown);
    assert_eq!(classify(&fading, Computing, &limits), Computing);
    let faded = profiled(1.0, 0.19, 0.5, 0.3, 0.1);
    assert_eq!(classify(&faded, Computing, &limits), Unknown);
}

#[test]
fn what_is_not_known_decides_nothing() {
    assert_eq!(verdict(&Signals::default()), Unknown);
    let only_utilization = Signals { utilization: Some(1.0), gang: true, ..Signals::default() };
    assert_eq!(verdict(&only_utilization), Unknown);
    let no_dram = Signals { dram: None, comm: None, ..profiled(1.0, 0.01, 0.1, 0.0, 0.0) };
    assert_eq!(verdict(&no_dram), Waiting);
    let no_utilization = Signals { utilization: None, ..profiled(0.0, 0.01, 0.1, 0.0, 0.0) };
    assert_eq!(verdict(&no_utilization), Unknown);
}
