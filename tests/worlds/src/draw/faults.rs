//! Draws faults: what, where, how much, when and how they go on.

use super::{
    limits::{cycle_s, healthy_past_s, is_sized, limit_s, next_pause_s},
    places::{FAULT_KINDS, FaultPlace, is_steady, list_places, rail_count, uses_network},
};
use crate::{
    cluster_plan::ClusterPlan,
    exporter_plan::ExporterPlan,
    fault_plan::{FaultCourse, FaultKind, FaultPlan},
    random::RandomKey,
};

/// Least and most loss of speed of sized faults.
pub(super) const LEAST_LOSS: f64 = 0.03;
pub(super) const MOST_LOSS: f64 = 0.8;

/// Probability of a second fault.
const SECOND_FAULT: f64 = 0.07;

/// The longest wait for a checkpoint in which a fault begins.
const LONGEST_WAIT_S: f64 = 700.0;

/// What is asked of a fault.
pub(super) struct FaultWish {
    pub(super) kind: Option<FaultKind>,
    pub(super) loss: Option<f64>,
    pub(super) course: Option<FaultCourse>,
    pub(super) has_second: bool,
}

/// What a fault strikes.
pub(super) struct FaultGround<'a> {
    pub(super) cluster: &'a ClusterPlan,
    pub(super) exporters: &'a ExporterPlan,
}

/// How a fault begins and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Steady,
    Intermittent,
    Growing,
    Healed,
    BeforeFirstLook,
    DuringCheckpoint,
}

impl FaultGround<'_> {
    fn places(&self, kind: FaultKind) -> Vec<FaultPlace> {
        list_places(self.cluster, kind, self.exporters.collect_s)
    }

    /// The kinds that can strike here.
    pub(super) fn feasible_kinds(&self) -> Vec<FaultKind> {
        FAULT_KINDS.into_iter().filter(|kind| !self.places(*kind).is_empty()).collect()
    }

    /// Draws one or two faults.
    pub(super) fn draw_faults(
        &self,
        key: RandomKey,
        wish: &FaultWish,
    ) -> Result<Vec<FaultPlan>, String> {
        let key = key.child("fault");
        let kind = if let Some(kind) = wish.kind {
            kind
        } else {
            let kinds = self.feasible_kinds();
            *kinds
                .get(key.child("kind").index(kinds.len()))
                .ok_or("no kind of fault can strike this cluster")?
        };
        let key = key.child(&format!("{kind:?}"));
        let places = self.places(kind);
        let place = *places
            .get(key.child("place").index(places.len()))
            .ok_or_else(|| format!("{kind:?} cannot strike this cluster"))?;
        let first = self.draw_fault(key, kind, place, wish);
        let is_drawn = wish.kind.is_none() && key.child("second").chance(SECOND_FAULT);
        let second = (wish.has_second || is_drawn).then(|| self.draw_second(key, &first));
        Ok([Some(first), second.flatten()].into_iter().flatten().collect())
    }

    fn draw_fault(
        &self,
        key: RandomKey,
        kind: FaultKind,
        place: FaultPlace,
        wish: &FaultWish,
    ) -> FaultPlan {
        let drawn_loss = key.child("loss").log_uniform(LEAST_LOSS, MOST_LOSS);
        let is_silent = kind == FaultKind::LinkErrors && wish.loss.is_none();
        let loss = if !is_sized(kind) || is_silent && key.child("silent").chance(0.5) {
            if self.stops_job(kind, place) { 1.0 } else { 0.0 }
        } else {
            wish.loss.unwrap_or(drawn_loss)
        };
        let past_s =
            healthy_past_s(self.cluster, self.exporters) + key.child("past").uniform(1.0, 60.0);
        let mut fault = FaultPlan {
            kind,
            job: place.job,
            node: place.node,
            gpu: place.gpu,
            port: place.port,
            leaf: place.leaf,
            rail: place.rail,
            loss,
            onset_s: past_s,
            course: FaultCourse::Steady,
        };
        match &wish.course {
            // A port that flaps does so for some seconds of every period.
            Some(course) if kind != FaultKind::PortFlap || is_periodic(course) => {
                fault.course = course.clone();
            }
            _ => self.set_fate(key.child("fate"), &mut fault),
        }
        fault
    }

    /// Whether a fault ends the progress of its job.
    fn stops_job(&self, kind: FaultKind, place: FaultPlace) -> bool {
        match kind {
            FaultKind::Hang | FaultKind::IdleAllocated | FaultKind::GpuLost => place.job.is_some(),
            FaultKind::PortDown => {
                let job = place.job.map(|job| &self.cluster.jobs[job]);
                rail_count(self.cluster) == 1 && job.is_some_and(uses_network)
            }
            _ => false,
        }
    }

    fn set_fate(&self, key: RandomKey, fault: &mut FaultPlan) {
        let fate = self.draw_fate(key, fault);
        let longest_look_s = self.exporters.scrape_s.max(self.exporters.collect_s);
        let cycle_s = fault.job.map_or(0.0, |job| cycle_s(&self.cluster.jobs[job]));
        match fate {
            Fate::Steady => {}
            Fate::Intermittent => {
                let is_flap = fault.kind == FaultKind::PortFlap;
                let least_s = if is_flap { 20.0 } else { 30.0_f64.max(3.0 * cycle_s) };
                let every_s =
                    (least_s * key.child("every").uniform(1.0, 3.0)).max(2.5 * longest_look_s);
                let share = if is_flap { (0.1, 0.4) } else { (0.35, 0.75) };
                let on_s = every_s * key.child("on").uniform(share.0, share.1);
                fault.course = FaultCourse::Intermittent { on_s, every_s };
            }
            Fate::Growing => {
                let over_s = key.child("over").log_uniform(60.0, 400.0).max(4.0 * longest_look_s);
                fault.course = FaultCourse::Growing { over_s };
            }
            Fate::Healed => {
                let limit_s = limit_s(self.cluster, self.exporters, fault, None);
                let after_s = limit_s * key.child("after").uniform(1.0, 2.0) + 5.0;
                fault.course = FaultCourse::Healed { after_s };
            }
            Fate::BeforeFirstLook => {
                fault.onset_s = -key.child("before").log_uniform(30.0, 7_200.0);
            }
            Fate::DuringCheckpoint => {
                let pause = fault.job.and_then(|job| self.cluster.jobs[job].checkpoint.as_ref());
                if let Some(pause) = pause {
                    let start_s = next_pause_s(pause, fault.onset_s);
                    fault.onset_s = start_s + key.child("within").uniform(0.0, 0.9) * pause.lasts_s;
                }
            }
        }
    }

    fn draw_fate(&self, key: RandomKey, fault: &FaultPlan) -> Fate {
        use FaultKind as Kind;
        if fault.kind == Kind::PortFlap {
            return Fate::Intermittent;
        }
        let fate = match key.unit() {
            share if share < 0.6 => Fate::Steady,
            share if share < 0.7 => Fate::Intermittent,
            share if share < 0.8 => Fate::Growing,
            share if share < 0.9 => Fate::Healed,
            share if share < 0.95 => Fate::BeforeFirstLook,
            _ => Fate::DuringCheckpoint,
        };
        let is_of_software = matches!(fault.kind, Kind::StageImbalance | Kind::DataSkew);
        let is_slow = is_sized(fault.kind) && fault.loss > 0.0;
        let fits = match fate {
            Fate::Steady => true,
            Fate::Intermittent => is_slow && !is_of_software,
            Fate::Growing => is_slow,
            Fate::Healed => {
                is_slow
                    || matches!(fault.kind, Kind::PortDown | Kind::PortRateLow | Kind::ExporterDown)
            }
            // Told by the device itself, or by the difference from its sisters.
            Fate::BeforeFirstLook => match fault.kind {
                Kind::PortDown => !self.stops_job(fault.kind, place_of(fault)),
                Kind::PortRateLow | Kind::LinkErrors | Kind::ExporterDown => true,
                Kind::GpuClockLow | Kind::GpuThermal | Kind::PowerBrake | Kind::LaunchBound => {
                    fault.loss >= 0.15 && fault.job.is_some_and(|job| self.has_sisters(job))
                }
                Kind::LoaderSlowLoud | Kind::PcieDegraded | Kind::NvlinkErrors => {
                    fault.loss >= 0.15 && fault.job.is_some_and(|job| self.has_sisters(job))
                }
                _ => false,
            },
            Fate::DuringCheckpoint => {
                let pause = fault.job.and_then(|job| self.cluster.jobs[job].checkpoint.as_ref());
                let is_soon = pause.is_some_and(|pause| {
                    next_pause_s(pause, fault.onset_s) - fault.onset_s < LONGEST_WAIT_S
                });
                is_soon && fault.kind != Kind::IdleAllocated
            }
        };
        if fits { fate } else { Fate::Steady }
    }

    /// Whether a job has at least three machines of equal work.
    fn has_sisters(&self, job: usize) -> bool {
        let job = &self.cluster.jobs[job];
        job.nodes.len() >= 3 && job.step.pipeline_stages == 1 && is_steady(job)
    }

    /// A fault of another machine, and of another job unless a device states it; none if there is no such place.
    fn draw_second(&self, key: RandomKey, first: &FaultPlan) -> Option<FaultPlan> {
        use FaultKind as Kind;
        let key = key.child("second fault");
        let stated = [Kind::PortRateLow, Kind::LinkErrors, Kind::ExporterDown, Kind::PortDown];
        let touched = first.job.map(|job| &self.cluster.jobs[job].nodes);
        let fits = |kind: Kind, place: &FaultPlace| {
            let is_other_job = place.job != first.job
                && first.kind != Kind::StorageSlowForAll
                && !touched.is_some_and(|nodes| nodes.contains(&place.node));
            let is_stated = stated.contains(&kind) && !self.stops_job(kind, *place);
            place.node != first.node
                && kind != first.kind
                && !matches!(kind, Kind::LeafCongested | Kind::RailSlow | Kind::StorageSlowForAll)
                && (is_other_job || is_stated)
        };
        let options: Vec<(Kind, Vec<FaultPlace>)> = FAULT_KINDS
            .into_iter()
            .filter(|kind| !matches!(kind, Kind::IdleAllocated))
            .map(|kind| {
                let places = self.places(kind).into_iter().filter(|place| fits(kind, place));
                (kind, places.collect())
            })
            .filter(|(_, places): &(Kind, Vec<FaultPlace>)| !places.is_empty())
            .collect();
        let (kind, places) = options.get(key.child("kind").index(options.len()))?;
        let place = key.child("place").pick(places);
        let wish = FaultWish {
            kind: Some(*kind),
            loss: None,
            course: Some(FaultCourse::Steady),
            has_second: false,
        };
        let mut second = self.draw_fault(key, *kind, place, &wish);
        if *kind == Kind::LinkErrors && second.job == first.job {
            // Two faults that slow one job hide each other.
            second.loss = 0.0;
        }
        second.onset_s += key.child("later").uniform(0.0, 120.0);
        Some(second)
    }
}

fn is_periodic(course: &FaultCourse) -> bool {
    matches!(course, FaultCourse::Intermittent { .. })
}

fn place_of(fault: &FaultPlan) -> FaultPlace {
    FaultPlace {
        job: fault.job,
        node: fault.node,
        gpu: fault.gpu,
        port: fault.port,
        leaf: fault.leaf,
        rail: fault.rail,
    }
}
