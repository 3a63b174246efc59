//! What everything does until the next refresh: faults, heat, paces, activities, loads.

use super::{
    RatePhysics,
    activity::{Activity, GpuRates, RankStep},
    gang::{Conditions, RankTimes, StepTimes},
    gang_run::{ENDING_S, Mode, work_at},
    loader::response_s,
    sizing::supply,
};
use crate::fault_plan::FaultKind;

/// Duration of a step of an evaluation relative to one of training.
const EVALUATION_SHARE: f64 = 0.35;
/// A step of at least so many seconds is shown as it goes; shorter ones are means.
const LONG_STEP_S: f64 = 1.0;

impl RatePhysics {
    /// Sets all rates for some seconds from an instant on.
    pub(super) fn refresh(&mut self, t_s: f64, seconds: f64) {
        self.impair(t_s);
        self.begin_machines(t_s);
        for gang in 0..self.gangs.len() {
            self.refresh_gang(gang, t_s, seconds);
        }
        let clock = self.last_refresh_s;
        self.last_refresh_s = t_s;
        for (node, host) in self.hosts.iter_mut().enumerate() {
            if let Some(port) = self.storage_ports[node] {
                self.ports.storage[port] = (host.load.read_bytes, host.load.write_bytes);
            }
            host.refresh(t_s);
        }
        self.ports.refresh(t_s, &self.impairment, &self.wiring);
        if t_s > clock || clock.is_nan() {
            self.note_faults(t_s);
        }
    }

    /// Adds up the faults.
    fn impair(&mut self, t_s: f64) {
        self.impairment.clear();
        for fault in &self.faults {
            let since_s = t_s - fault.plan.onset_s;
            let size = fault.plan.course.size_at(since_s);
            self.impairment.add(fault, (size, since_s), &self.plan, &self.wiring);
        }
    }

    /// Lets heat and power limits follow, and takes everybody's work away.
    fn begin_machines(&mut self, t_s: f64) {
        let passed_s = if self.last_refresh_s.is_nan() { 0.0 } else { t_s - self.last_refresh_s };
        let cap = self.plan.power_cap.filter(|(from_s, _)| t_s >= *from_s);
        let cap = cap.map_or(1.0, |(_, share)| share);
        let is_new_cap = (cap - self.power_share).abs() > 1e-9;
        self.power_share = cap;
        for (node, host) in self.hosts.iter_mut().enumerate() {
            host.begin(t_s);
            self.slow_hosts[node] = host.slows;
            let (size_k, period_s) = self.plan.nodes[node].host.inlet_wave;
            let phase = node as f64 * 0.02 + t_s / period_s.max(1.0);
            let inlet_k = size_k * (std::f64::consts::TAU * phase).sin();
            let first = self.wiring.first_gpu[node];
            for (gpu, state) in self.nodes[node].gpus.iter().enumerate() {
                let run = &mut self.gpus[first + gpu];
                let impairment = self.impairment.gpus[first + gpu];
                run.begin(state, impairment, (t_s, passed_s), inlet_k);
                if is_new_cap {
                    run.limit_power(cap);
                }
                self.clocks[first + gpu] = run.compute_clock(&impairment);
            }
        }
    }

    fn refresh_gang(&mut self, index: usize, t_s: f64, seconds: f64) {
        let run = &self.gangs[index];
        let job = &self.plan.jobs[run.model.gang.job];
        let habits = &self.habits[run.model.gang.job];
        let standing = &self.impairment.jobs[run.model.gang.job];
        let mut mode = run.mode_at(t_s, job, habits, standing);
        let conditions = Conditions {
            clocks: &self.clocks,
            impairment: &self.impairment,
            work: work_at(job, t_s, self.duration_s),
            slow_hosts: &self.slow_hosts,
        };
        if matches!(mode, Mode::Training | Mode::Evaluating) {
            let step = run.model.solve(conditions, &self.wiring, &mut self.scratch);
            if !step.total_s.is_finite() {
                mode = Mode::Hanging;
            }
            self.gangs[index].step = step;
        }
        let is_over = |mode| matches!(mode, Mode::Absent | Mode::Ending(_));
        let has_ended = is_over(mode) && !is_over(self.gangs[index].mode);
        if has_ended && self.plan.jobs[self.gangs[index].model.gang.job].ends_in_crash {
            self.crash_ports(index, t_s);
        }
        self.gangs[index].mode = mode;
        self.gangs[index].cycles_per_s = 0.0;
        self.gangs[index].pace = 0.0;
        match mode {
            Mode::Absent => {}
            Mode::Training => self.train(index, t_s, seconds),
            Mode::Evaluating => self.evaluate(index),
            Mode::Serving => self.serve(index, t_s),
            _ => self.stand(index, t_s),
        }
        if !matches!(mode, Mode::Training | Mode::Absent) {
            self.fill_queues(index, seconds);
        }
    }

    /// The ports of a gang lose their peers for some seconds.
    fn crash_ports(&mut self, index: usize, t_s: f64) {
        for rank in &self.gangs[index].model.gang.ranks {
            if let Some(port) = rank.port {
                self.ports.crashed_until_s[port] = t_s + 12.0;
            }
        }
    }

    /// Loaders go on while their job pauses.
    fn fill_queues(&mut self, index: usize, seconds: f64) {
        let run = &mut self.gangs[index];
        let habits = &self.habits[run.model.gang.job];
        for slot in 0..run.queues.len() {
            let supply = supply(&run.model, habits, &self.impairment, slot);
            run.queues[slot].advance(supply, 0.0, seconds);
        }
    }

    /// A gang trains: loaders limit its pace, and everybody waits for the slowest.
    fn train(&mut self, index: usize, t_s: f64, seconds: f64) {
        let run = &mut self.gangs[index];
        let job = run.model.gang.job;
        let habits = self.habits[job];
        let wobble = 1.0 + 0.006 * run.noise.wave(t_s, 11.0);
        let free_s = run.step.total_s * wobble;
        let supplies: Vec<f64> = (0..run.queues.len())
            .map(|slot| supply(&run.model, &habits, &self.impairment, slot))
            .collect();
        let highest = run.queues.iter().zip(&supplies);
        let pace = highest
            .map(|(queue, supply)| queue.highest_pace(*supply, seconds))
            .fold(1.0 / free_s, f64::min);
        for (queue, supply) in run.queues.iter_mut().zip(&supplies) {
            queue.advance(*supply, pace, seconds);
        }
        run.pace = pace;
        run.total_s = 1.0 / pace;
        run.cycles_per_s = pace / run.cycle_steps;
        // All parts of the step share its noise.
        let total_s = run.total_s / wobble;
        let times = self.vary_ranks(index, t_s);
        let run = &self.gangs[index];
        let rolls_out = self.rolls_out(index);
        for (rank, times) in run.model.gang.ranks.iter().zip(&times) {
            let queue = &run.queues[rank.slot];
            let starved_s = if queue.is_limiting { total_s - run.step.total_s } else { 0.0 };
            let gpu = &mut self.gpus[rank.gpu];
            let has_nvlink = self.plan.nodes[rank.node].has_nvlink;
            let setting = gpu.setting(has_nvlink, &self.impairment.gpus[rank.gpu]);
            let rank_step = RankStep {
                gang: index,
                model: &run.model,
                plan: &self.plan.jobs[job].step,
                habits: &habits,
                step: &run.step,
                total_s,
                starved_s: starved_s.max(0.0),
                rolls_out,
            };
            gpu.activity = rank_step.activity(times, &setting);
            gpu.route = times.route;
            gpu.is_free = false;
            gpu.memory_bytes = habits.memory_share * gpu.board.memory_bytes;
            let launches = self.impairment.gpus[rank.gpu].launch > 0.0;
            let thread = habits.thread_busy * (0.97 + 0.03 * run.noise.of(rank.gpu).wave(t_s, 4.0));
            let thread = if launches { 0.998 } else { thread.min(1.0) };
            let local = rank.gpu - self.wiring.first_gpu[rank.node];
            self.hosts[rank.node].load.threads[local] = thread;
        }
        self.load_hosts(index, t_s, 1.0);
    }

    fn rolls_out(&self, index: usize) -> bool {
        let gang = &self.gangs[index].model.gang;
        gang.half == 0 && self.wiring.gangs_of(gang.job).count() > 1
    }

    /// The step of each rank, with what differs from step to step.
    fn vary_ranks(&self, index: usize, t_s: f64) -> Vec<RankTimes> {
        let run = &self.gangs[index];
        let plan = &self.plan.jobs[run.model.gang.job];
        let skew = self.impairment.jobs[run.model.gang.job].skew;
        let groups = run.model.gang.groups.max(1);
        let is_long = run.total_s * run.cycle_steps >= LONG_STEP_S;
        let cycle = run.place.floor() as i64;
        let heavy = (run.noise.of(1).unit(cycle) * groups as f64) as usize;
        let ranks = run.model.gang.ranks.iter().zip(&run.step.ranks);
        let varied = ranks.map(|(rank, times)| {
            let noise = run.noise.of(2 + rank.group);
            let spread = plan.step.work_spread;
            let (more, chance) = if is_long {
                (spread * noise.normal(cycle), f64::from(u8::from(rank.group == heavy)))
            } else {
                let averaged = (run.total_s * run.cycle_steps / 5.0).sqrt();
                (spread * averaged * noise.wave(t_s, 5.0), 1.0 / groups as f64)
            };
            let factor = (1.0 + more).max(0.3) + skew * chance;
            RankTimes { compute_s: times.compute_s * factor, ..*times }
        });
        varied.collect()
    }

    /// A gang evaluates: every rank by itself, without gradients.
    fn evaluate(&mut self, index: usize) {
        let run = &mut self.gangs[index];
        let job = run.model.gang.job;
        let own = |times: &RankTimes| times.own_s() - times.group_wait_s;
        let slowest_s = run.step.ranks.iter().map(own).fold(1e-6, f64::max);
        run.total_s = slowest_s;
        run.cycles_per_s = 1.0 / (EVALUATION_SHARE * slowest_s);
        let silent = StepTimes { total_s: slowest_s, ..StepTimes::default() };
        for (rank, times) in run.model.gang.ranks.iter().zip(&run.step.ranks) {
            let gpu = &mut self.gpus[rank.gpu];
            let has_nvlink = self.plan.nodes[rank.node].has_nvlink;
            let setting = gpu.setting(has_nvlink, &self.impairment.gpus[rank.gpu]);
            let rank_step = RankStep {
                gang: index,
                model: &run.model,
                plan: &self.plan.jobs[job].step,
                habits: &self.habits[job],
                step: &silent,
                total_s: slowest_s,
                starved_s: 0.0,
                rolls_out: false,
            };
            let times = RankTimes { group_wait_s: 0.0, route: None, ..*times };
            gpu.activity = rank_step.activity(&times, &setting);
            gpu.is_free = false;
            gpu.memory_bytes = self.habits[job].memory_share * gpu.board.memory_bytes;
            let local = rank.gpu - self.wiring.first_gpu[rank.node];
            self.hosts[rank.node].load.threads[local] = self.habits[job].thread_busy;
        }
    }

    /// Servers: each group answers requests in bursts.
    fn serve(&mut self, index: usize, t_s: f64) {
        let run = &mut self.gangs[index];
        let job = run.model.gang.job;
        let habits = &self.habits[job];
        let step = &self.plan.jobs[job].step;
        let mut demands = 0.0;
        for rank in &run.model.gang.ranks {
            let noise = run.noise.of(2 + rank.group);
            let slow_wave = 0.3 * run.noise.wave(t_s, 240.0) + 0.15 * noise.wave(t_s, 40.0);
            let level = (0.15 + 0.5 * run.noise.unit(5) + slow_wave).clamp(0.0, 1.0);
            let slot = (t_s / 2.0).floor() as i64;
            let demand = if noise.unit(slot) < level { 0.4 + 0.6 * noise.unit(!slot) } else { 0.0 };
            demands += demand;
            let gpu = &mut self.gpus[rank.gpu];
            let setting = gpu.setting(true, &self.impairment.gpus[rank.gpu]);
            let busy = demand.sqrt();
            gpu.activity = Activity::constant(GpuRates {
                busy,
                engine: 0.95 * busy,
                sm: 0.55 * demand,
                tensor: 0.25 * step.tensor_share * demand,
                dram: 0.65 * demand,
                power_w: setting.partial_w(0.6 * demand),
                pcie_in: 4e6 + 3e8 * demand,
                pcie_out: 2e6 + 5e7 * demand,
                link: if rank.group > 0 { 2e9 * demand } else { 0.0 },
                clock: setting.top_clock,
                ..GpuRates::default()
            });
            gpu.is_free = false;
            gpu.memory_bytes = (0.86 + 0.06 * noise.unit(3)) * gpu.board.memory_bytes;
            let local = rank.gpu - self.wiring.first_gpu[rank.node];
            self.hosts[rank.node].load.threads[local] = 0.2 + 0.6 * demand * habits.thread_busy;
        }
        let ranks = run.model.gang.ranks.len().max(1) as f64;
        run.pace = demands / ranks / run.model.step_s;
    }

    /// A gang that is allocated and does not step.
    fn stand(&mut self, index: usize, t_s: f64) {
        let run = &self.gangs[index];
        let mode = run.mode;
        let habits = self.habits[run.model.gang.job];
        for (number, rank) in run.model.gang.ranks.iter().enumerate() {
            let leaves_s = ENDING_S * run.noise.of(rank.node).unit(9);
            if matches!(mode, Mode::Ending(since_s) if since_s >= leaves_s) {
                continue;
            }
            let gpu = &mut self.gpus[rank.gpu];
            let setting = gpu.setting(true, &self.impairment.gpus[rank.gpu]);
            let mut rates = setting.resting();
            let mut filled = 1.0;
            let mut thread = 0.05;
            match mode {
                Mode::Hanging | Mode::Ending(_) => {
                    rates = setting.waiting(&habits);
                    thread = habits.thread_busy;
                }
                Mode::Saving { is_by_one_rank: true, .. } if number > 0 => {
                    rates = setting.waiting(&habits);
                    thread = habits.thread_busy;
                }
                Mode::Saving { done, .. } => {
                    rates.pcie_out += if done < 0.2 { 4e9 } else { 1e8 };
                    rates.busy = 0.02;
                    thread = 0.8;
                }
                Mode::Starting(done) => {
                    filled = done.min(1.0);
                    rates.pcie_in += if (0.3..0.7).contains(&done) { 3e9 } else { 1e7 };
                    rates.busy = 0.06 * done;
                    thread = 0.5 + 0.4 * run.noise.unit(number as i64);
                }
                _ => {}
            }
            rates.clock = if mode == Mode::Idling { 0.3 * rates.clock } else { rates.clock };
            gpu.activity = Activity::constant(rates);
            gpu.is_free = false;
            gpu.memory_bytes = filled * habits.memory_share * gpu.board.memory_bytes;
            let local = rank.gpu - self.wiring.first_gpu[rank.node];
            self.hosts[rank.node].load.threads[local] = thread;
        }
        let reading = if matches!(mode, Mode::Starting(_)) { 0.5 } else { 0.0 };
        self.load_hosts(index, t_s, reading);
        if let Mode::Saving { is_by_one_rank, .. } = mode {
            let nodes = &self.gangs[index].model.gang.nodes;
            let writers = if is_by_one_rank { 1 } else { nodes.len() };
            for node in nodes.iter().take(writers) {
                self.hosts[*node].load.write_bytes += 1.2e9;
            }
        }
    }

    /// What loaders and storage ask of the hosts of a gang.
    fn load_hosts(&mut self, index: usize, t_s: f64, activity: f64) {
        let run = &self.gangs[index];
        let job = run.model.gang.job;
        let (plan, habits) = (&self.plan.jobs[job], &self.habits[job]);
        let (step_s, storage) = (run.model.step_s, self.impairment.jobs[job].storage);
        let used = run.model.gang.ranks.len() as f64 / run.queues.len().max(1) as f64;
        for (node, queue) in run.model.gang.nodes.iter().zip(&run.queues) {
            let host = &mut self.hosts[*node];
            let gpus = host.load.threads.len().max(1) as f64;
            let flow = (queue.filled_per_s * step_s).min(3.0) * activity.min(1.0);
            let cpus = self.plan.nodes[*node].host.cpus as f64 * habits.loader_cpus * used / gpus;
            host.load.loader_cpus += cpus * flow;
            let wobble = 1.0 + 0.08 * run.noise.of(*node).wave(t_s, 3.0);
            let bytes = plan.step.read_bytes_per_s * flow * wobble;
            host.load.read_bytes += bytes;
            let load = flow * (1.0 + storage) / habits.storage_headroom;
            let base_s = 0.002 + 0.004 * run.noise.unit(77);
            let reads_per_s = bytes / 524_288.0;
            // A loader that waits for storage has all its readers wait.
            let is_waiting = storage > 0.0 && load > 0.98;
            let response = response_s(base_s, load, 64.0, reads_per_s);
            let slow_s = base_s * (1.0 + storage) * wobble;
            host.load.response_s = if is_waiting { response * wobble } else { slow_s };
            host.load.storage_wait = if is_waiting { storage / (1.0 + storage) } else { 0.0 };
            host.load.memory_bytes += 1.5e10 * used;
            let loader = self.impairment.loaders[*node];
            if loader.slow > 0.0 && loader.job == job {
                host.load.cpu_fault = host.load.cpu_fault.max(loader.cpu);
                host.load.io_fault = host.load.io_fault.max(loader.io);
            }
        }
    }

    /// Notes which faults show for the first time.
    fn note_faults(&mut self, t_s: f64) {
        for index in 0..self.faults.len() {
            let fault = &self.faults[index];
            let size = fault.plan.course.size_at(t_s - fault.plan.onset_s);
            if fault.shown_s.is_none() && size > 0.0 && self.shows(index, t_s) {
                self.faults[index].shown_s = Some(t_s);
            }
        }
    }

    /// Whether a fault that is present limits its job or can be seen.
    fn shows(&mut self, index: usize, t_s: f64) -> bool {
        let fault = &self.faults[index];
        let Some(job) = fault.plan.job.filter(|_| fault.severity > 0.0) else { return true };
        let node = fault.plan.node;
        let gangs: Vec<usize> = self.wiring.gangs_of(job).collect();
        match fault.plan.kind {
            FaultKind::LoaderSlowLoud
            | FaultKind::LoaderSlowSilent
            | FaultKind::StorageSlowForJob
            | FaultKind::StorageSlowForAll => gangs.into_iter().any(|gang| {
                let gang = &self.gangs[gang];
                gang.mode == Mode::Training && gang.queues.iter().any(|queue| queue.is_limiting)
            }),
            FaultKind::GpuThermal => {
                let gpu = &self.gpus[self.wiring.first_gpu[node] + fault.plan.gpu];
                gpu.heat.clock < 0.99
            }
            FaultKind::LinkErrors | FaultKind::PowerBrake => true,
            _ => gangs.into_iter().any(|gang| self.is_slowed(gang, t_s)),
        }
    }

    /// Whether faults slow the steps of a gang.
    fn is_slowed(&mut self, index: usize, t_s: f64) -> bool {
        let run = &self.gangs[index];
        if run.mode != Mode::Training {
            return false;
        }
        let clocks: Vec<f64> = self.gpus.iter().map(|gpu| gpu.cap_clock).collect();
        let job = &self.plan.jobs[run.model.gang.job];
        let conditions = Conditions {
            clocks: &clocks,
            impairment: &self.soundness,
            work: work_at(job, t_s, self.duration_s),
            slow_hosts: &self.slow_hosts,
        };
        let sound = run.model.solve(conditions, &self.wiring, &mut self.scratch);
        run.step.total_s > 1.003 * sound.total_s
    }
}
