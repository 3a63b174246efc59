//! The collector of the GPUs: what the workers said becomes readings, what they did not say becomes absence.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use gaunt_schema::{Device, Report, Safe, UnixMs, catalogue::exporter, xid::xid};
use tokio::sync::watch;

use super::{
    gpus::{Remembered, Whose},
    kernel_log::{self, KernelLog},
    owners::Owners,
    pipe::{self, Message, XidCount},
    supervisor::{Health, Heard, Supervisor},
    xids::{Source, Xids},
};
use crate::{
    Options, clock,
    collector::{CollectError, Collector, Outcome},
    exclude::Exclude,
    kubelet::Pods,
    pci,
};

/// After this many ticks the neighbours of the GPUs are looked for again.
const TICKS_BETWEEN_LOOKS: u32 = 60;

/// Reads GPUs through the workers of a [`Supervisor`].
pub(crate) struct Gpus {
    supervisor: Supervisor,
    remembered: Remembered,
    driver: Safe,
    /// When the last round began.
    last_tick: Option<UnixMs>,
    /// How long ago a round may have begun for its values to stand for now.
    longest_age: Duration,
    /// What went wrong in the last round.
    failures: Vec<Safe>,
    owners: Owners,
    /// What the kubelet last said.
    pods: watch::Receiver<Arc<Pods>>,
    sys_root: PathBuf,
    exclude: Exclude,
    ticks_to_look: u32,
    xids: Xids,
    log: Log,
}

/// The kernel's log as the second source of XIDs.
struct Log {
    /// Where it is, if it is wanted.
    path: Option<PathBuf>,
    proc_root: PathBuf,
    open: Option<Result<KernelLog, String>>,
}

impl Gpus {
    pub(crate) fn new(options: &Options, pods: watch::Receiver<Arc<Pods>>) -> Self {
        let logs = options.has(crate::Source::Xid) && options.has(crate::Source::KernelLog);
        Self {
            supervisor: Supervisor::new(options),
            remembered: Remembered::default(),
            driver: Safe::default(),
            last_tick: None,
            longest_age: options.period + options.call_deadline,
            failures: Vec::new(),
            sys_root: options.sys_root.clone(),
            exclude: Exclude::new(&options.exclude),
            ticks_to_look: 0,
            owners: Owners::new(&options.proc_root),
            pods,
            xids: Xids::default(),
            log: Log {
                path: options.kernel_log.clone().filter(|_| logs),
                proc_root: options.proc_root.clone(),
                open: None,
            },
        }
    }

    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Gone(worker) => self.remembered.forget_worker(worker),
            Heard::Said(worker, Message::Hello { version, pid, driver }) => {
                tracing::info!(worker, pid, %driver, "the NVML worker is ready");
                if version != pipe::VERSION {
                    tracing::error!(version, "the NVML worker is of another version");
                }
                self.driver = driver;
            }
            Heard::Said(worker, Message::Inventory { gpus }) => {
                self.remembered.inventory(worker, &self.driver, gpus);
                self.ticks_to_look = 0;
            }
            // A round that hung half-way and came back is older than what its spare has said since.
            Heard::Said(_, Message::Tick { at, .. }) if self.last_tick >= Some(at) => {}
            Heard::Said(worker, Message::Tick { at, seconds, gpus, failures }) => {
                self.remembered.tick(worker, seconds, gpus);
                self.last_tick = Some(at);
                if failures != self.failures {
                    for failure in &failures {
                        tracing::warn!(%failure, "a driver call failed");
                    }
                    self.failures = failures;
                }
            }
            Heard::Said(worker, Message::Xids { counts }) => {
                for XidCount { gpu, code, count, at } in counts {
                    if let Some(number) = self.remembered.number(worker, gpu) {
                        self.xid((number, code), count, Source::Driver, at);
                    }
                }
            }
            // These concern the supervisor, which took them.
            Heard::Said(_, Message::Calling(_) | Message::Trouble { .. }) => {}
        }
    }

    fn xid(&mut self, (gpu, code): (u32, u32), count: u64, source: Source, at: UnixMs) {
        if self.xids.take((gpu, code), count, source, at) {
            let row = xid(code);
            tracing::warn!(gpu, xid = code, meaning = row.meaning, action = row.action, "XID");
        }
    }

    /// Looks now and then where the GPUs sit and what sits beside them: cards may come later.
    fn look_around(&mut self) {
        if self.ticks_to_look > 0 {
            self.ticks_to_look -= 1;
            return;
        }
        self.ticks_to_look = TICKS_BETWEEN_LOOKS;
        let cards = pci::cards(&self.sys_root, |name| self.exclude.leaves_alone(name));
        self.remembered.look_around(&self.sys_root, &cards);
    }

    /// Reads on in the kernel's log, and says how that went.
    fn read_log(&mut self, report: &mut Report) {
        let Some(path) = &self.log.path else { return };
        let said = |error: io::Error| {
            format!(
                "cannot read {}: {error}; XIDs come from the driver alone; let this user read it",
                path.display()
            )
        };
        let open = || KernelLog::open(path).map_err(said);
        let news = match self.log.open.get_or_insert_with(open) {
            Ok(log) => log.news().map_err(said),
            Err(message) => Err(message.clone()),
        };
        let device = report.device(Device::collector("kernel_log"));
        report.push(device, exporter::COLLECTOR_SUCCESS, f64::from(u8::from(news.is_ok())));
        if let Err(message) = &news {
            report.info(device, exporter::COLLECTOR_INFO, &[("message", message)]);
            self.log.open = Some(Err(message.clone()));
        }
        let lines = news.unwrap_or_default();
        if lines.is_empty() {
            return;
        }
        let boot = kernel_log::boot(&self.log.proc_root);
        for line in lines {
            let Some(gpu) = self.remembered.number_at(&line.pci) else { continue };
            let at =
                boot.map_or_else(clock::now, |boot| UnixMs(boot.0 + (line.micros / 1000) as i64));
            self.xid((gpu, line.code), 1, Source::KernelLog, at);
        }
    }

    /// What is said of GPUs that answer.
    fn found(&self) -> String {
        let (count, gone) = self.remembered.count();
        let plural = if count == 1 { "" } else { "s" };
        let mut parts = vec![format!("NVIDIA driver {}, {count} GPU{plural}", self.driver)];
        if !gone.is_empty() {
            let gone: Vec<_> = gone.iter().map(ToString::to_string).collect();
            parts.push(format!("lost: GPU {}", gone.join(", ")));
        }
        parts.extend(self.failures.first().map(ToString::to_string));
        if self.failures.len() > 1 {
            parts.push(format!("and {} more, see the log", self.failures.len() - 1));
        }
        parts.join("; ")
    }
}

impl Collector for Gpus {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError> {
        let now = Instant::now();
        for heard in self.supervisor.step(now) {
            self.take(heard);
        }
        let mut health = self.supervisor.health(now);
        let time = report.node_time.or(self.last_tick).unwrap_or_default();
        if health == Health::Working
            && self.last_tick.is_some_and(|at| time.since(at) > self.longest_age)
        {
            health = Health::Slow;
        }
        self.look_around();
        self.owners.keep(&self.remembered.pids());
        let pods = Arc::clone(&self.pods.borrow());
        let whose = Whose { owners: &self.owners, pods: &pods };
        self.remembered.write(health == Health::Working, whose, report);
        // A node that had GPUs and now has none has a problem, whatever the worker thinks.
        let had_gpus = self.remembered.count().0 > 0;
        if had_gpus {
            self.read_log(report);
            self.xids.write(time, report);
        }
        // A node without a driver has no worker that could hang.
        let hung = self.supervisor.hung();
        if had_gpus || hung > 0 {
            let device = report.device(Device::collector(self.name()));
            report.push(device, exporter::HUNG_WORKERS, hung as f64);
        }
        match health {
            Health::Working => Ok(Outcome::FoundThat { message: self.found(), at: self.last_tick }),
            Health::Starting => {
                Ok(Outcome::Pending("waiting for the NVIDIA driver to initialise".to_owned()))
            }
            Health::Blocked(_) | Health::Slow if self.supervisor.has_given_up() => {
                Err(CollectError::Driver(format!(
                    "{hung} NVML workers hang in driver calls, and no more are started; GPU values are stale; \
                     see `dmesg` for an Xid, reset the GPU or reboot the node"
                )))
            }
            Health::Blocked(calling) => Err(CollectError::Driver(format!(
                "driver call {calling} does not return; GPU values are stale; see `dmesg` for an Xid"
            ))),
            Health::Slow => Err(CollectError::Driver(
                "the driver answers too slowly; GPU values are stale; see `dmesg` for an Xid"
                    .to_owned(),
            )),
            Health::NothingHere(message) if !had_gpus => Ok(Outcome::Nothing(message.to_string())),
            Health::NothingHere(message) | Health::Down(message) => {
                Err(CollectError::Driver(message.to_string()))
            }
        }
    }
}
