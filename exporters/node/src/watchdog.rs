//! systemd's watchdog: fed while a restart would not help, so that systemd restarts the exporter only where it helps.
//!
//! If the unit has WatchdogSec, systemd passes a datagram socket and an interval in the environment, and restarts the
//! service when no `WATCHDOG=1` arrives within the interval (sd_notify(3)). None is sent once reports stop, and once
//! all NVML workers that may be started hang in driver calls for [`BLIND_FOR`], in a process for which the driver has
//! answered before: new workers may reach it again. If it never answered, a restart would only hang as many more, and
//! remove the rest of the page for a while.

use std::{
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    process,
    time::{Duration, Instant},
};

use gaunt_schema::{Device, Report, UnixMs, catalogue::exporter};

/// How long all NVML workers hang before the watchdog is no longer fed; calls may still return late.
pub const BLIND_FOR: Duration = Duration::from_mins(5);

/// The shortest time without a new report after which the sampler counts as stuck.
const SILENT_FOR: Duration = Duration::from_secs(30);

/// Messages per watchdog interval: one may be late or lost.
const IN_A_SPAN: u32 = 3;

/// The watchdog of the systemd unit.
#[derive(Debug)]
pub struct Watchdog {
    socket: UnixDatagram,
    address: SocketAddr,
    interval: Duration,
    /// The limit of hung workers, and of the time without a report.
    max_hung: usize,
    silent_for: Duration,
    /// When the last report arrived, and its time.
    reported: (Instant, Option<UnixMs>),
    /// Whether the driver has answered since this process started.
    has_answered: bool,
    /// Since when all workers hang.
    blind_since: Option<Instant>,
    is_fed: bool,
}

/// Why the watchdog cannot be fed.
#[derive(Debug, thiserror::Error)]
pub enum WatchdogError {
    /// The interval is not a number of microseconds.
    #[error("$WATCHDOG_USEC is {0:?}, not a number of microseconds; set WatchdogSec= in the unit")]
    Span(OsString),
    /// The socket is not usable.
    #[error(
        "cannot use the socket {path:?} of $NOTIFY_SOCKET: {error}; start gaunt-node with systemd, or without WatchdogSec="
    )]
    Socket {
        /// The path from the environment.
        path: OsString,
        /// Why it cannot be used.
        error: io::Error,
    },
}

impl Watchdog {
    /// The watchdog from the environment, if it is meant for this process.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
        now: Instant,
    ) -> Result<Option<Self>, WatchdogError> {
        let (Some(path), Some(span)) = (variable("NOTIFY_SOCKET"), variable("WATCHDOG_USEC"))
        else {
            return Ok(None);
        };
        let own_pid = process::id().to_string();
        if variable("WATCHDOG_PID").is_some_and(|pid| pid.as_bytes() != own_pid.as_bytes()) {
            return Ok(None);
        }
        let micros = span.to_str().and_then(|span| span.parse().ok()).filter(|micros| *micros > 0);
        let interval = Duration::from_micros(micros.ok_or(WatchdogError::Span(span))?) / IN_A_SPAN;
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(&path),
        };
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        match address.and_then(|address| Ok((address, socket?))) {
            Ok((address, socket)) => Ok(Some(Self {
                socket,
                address,
                interval,
                max_hung: usize::MAX,
                silent_for: SILENT_FOR,
                reported: (now, None),
                has_answered: false,
                blind_since: None,
                is_fed: true,
            })),
            Err(error) => Err(WatchdogError::Socket { path, error }),
        }
    }

    /// The time between two messages.
    pub fn every(&self) -> Duration {
        self.interval
    }

    /// Sets the properties of the current sampler.
    pub fn expect(&mut self, max_hung: usize, period: Duration, now: Instant) {
        self.max_hung = max_hung.max(1);
        self.silent_for = SILENT_FOR.max(period * 5);
        (self.reported, self.blind_since) = ((now, None), None);
    }

    /// Records the worker status of a report.
    pub fn note(&mut self, report: &Report, now: Instant) {
        if report.node_time == self.reported.1 {
            return; // The same one again.
        }
        self.reported = (now, report.node_time);
        let nvml = Device::new_collector("nvml");
        let value =
            |metric| report.find_reading(&nvml, metric).and_then(gaunt_schema::Reading::value);
        if value(exporter::COLLECTOR_SUCCESS) == Some(1.0) {
            self.has_answered = true;
        }
        // A collector that is late reports no workers: the last status is kept.
        let Some(hung) = value(exporter::HUNG_WORKERS) else { return };
        let is_blind = hung >= self.max_hung as f64;
        self.blind_since = is_blind.then(|| self.blind_since.unwrap_or(now));
    }

    /// Sends a message, unless a restart would help; returns whether it did.
    pub fn feed(&mut self, now: Instant) -> bool {
        let failure = self.trouble(now);
        let is_healthy = failure.is_none();
        if self.is_fed
            && let Some(why) = failure
        {
            tracing::error!("{why}; the watchdog is not fed, so that systemd restarts gaunt-node");
        }
        if !self.is_fed && is_healthy {
            tracing::info!("a restart is no longer needed");
        }
        self.is_fed = is_healthy;
        if !is_healthy {
            return false;
        }
        let sent = self.socket.send_to_addr(b"WATCHDOG=1", &self.address);
        if let Err(error) = &sent {
            tracing::warn!(%error, "cannot send to the systemd watchdog");
        }
        sent.is_ok()
    }

    /// Why a restart would help, if it would.
    fn trouble(&self, now: Instant) -> Option<String> {
        let silence = now.saturating_duration_since(self.reported.0);
        if silence > self.silent_for {
            return Some(format!("no report for {} s", silence.as_secs()));
        }
        let blind_time = now.saturating_duration_since(self.blind_since?);
        (self.has_answered && blind_time >= BLIND_FOR).then(|| {
            let (hung, minutes) = (self.max_hung, BLIND_FOR.as_secs() / 60);
            format!("{hung} NVML workers have been hanging in driver calls for {minutes} min")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::ErrorKind};

    use super::*;

    const MAX_HUNG: usize = 2;

    /// A watchdog, the socket that replaces systemd, and the start instant.
    fn start(name: &str) -> (Watchdog, UnixDatagram, Instant) {
        let (systemd, path) = if let Some(name) = name.strip_prefix('@') {
            let name = format!("{name}-{}", process::id());
            let address = SocketAddr::from_abstract_name(&name).unwrap();
            (UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"))
        } else {
            let systemd = UnixDatagram::bind(name).unwrap();
            (systemd, name.to_owned())
        };
        systemd.set_nonblocking(true).unwrap();
        let now = Instant::now();
        let watchdog = Watchdog::from_environment(environment(&path), now).unwrap();
        let mut watchdog = watchdog.unwrap();
        watchdog.expect(MAX_HUNG, Duration::from_secs(1), now);
        (watchdog, systemd, now)
    }

    fn environment(path: &str) -> impl Fn(&str) -> Option<OsString> {
        move |name| match name {
            "NOTIFY_SOCKET" => Some(path.into()),
            "WATCHDOG_USEC" => Some("60000000".into()),
            _ => None,
        }
    }

    /// A report at this second, with this many hung workers, and whether the driver answers.
    fn report(second: u64, hung: Option<f64>, answers: bool) -> Report {
        let node_time = Some(UnixMs(1_700_000_000_000) + Duration::from_secs(second));
        let mut report = Report { node_time, ..Report::default() };
        let nvml = report.ensure_device(Device::new_collector("nvml"));
        report.push(nvml, exporter::COLLECTOR_SUCCESS, f64::from(u8::from(answers)));
        if let Some(hung) = hung {
            report.push(nvml, exporter::HUNG_WORKERS, hung);
        }
        report
    }

    /// The messages on the socket since the last call.
    fn came(systemd: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 64];
        let mut messages = Vec::new();
        loop {
            match systemd.recv(&mut buffer) {
                Ok(size) => messages.push(String::from_utf8_lossy(&buffer[..size]).into_owned()),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return messages;
                }
            }
        }
    }

    #[test]
    fn watchdog_is_fed_while_a_worker_is_left_and_not_once_all_hang() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify").display().to_string();
        let (mut watchdog, systemd, start) = start(&path);
        let mut feed_times = Vec::new();
        let mut run = |from: u64, to: u64, hung: f64, answers: bool| {
            feed_times.clear();
            for second in from..to {
                let now = start + Duration::from_secs(second);
                watchdog.note(&report(second, Some(hung), answers), now);
                if watchdog.feed(now) {
                    feed_times.push(second);
                    assert_eq!(came(&systemd), ["WATCHDOG=1"]);
                } else {
                    assert!(came(&systemd).is_empty());
                }
            }
            feed_times.len() as u64
        };
        assert_eq!(run(0, 100, 0.0, true), 100, "healthy");
        assert_eq!(run(100, 1_000, 1.0, false), 900, "one hangs, a spare is left");
        assert_eq!(run(1_000, 2_000, 2.0, false), BLIND_FOR.as_secs(), "all hang");
        assert_eq!(run(2_000, 2_010, 1.0, true), 10, "one came back");
    }

    #[test]
    fn watchdog_is_fed_where_the_driver_never_answered() {
        let (mut watchdog, systemd, start) = start("@gaunt-watchdog-never");
        for second in 0..2_000 {
            let now = start + Duration::from_secs(second);
            watchdog.note(&report(second, Some(2.0), false), now);
            assert!(watchdog.feed(now));
            assert_eq!(came(&systemd), ["WATCHDOG=1"]);
        }
    }

    #[test]
    fn watchdog_is_not_fed_once_reports_stop() {
        let (mut watchdog, systemd, start) = start("@gaunt-watchdog-silent");
        let same = report(1, Some(0.0), true);
        watchdog.note(&same, start);
        let now = start + SILENT_FOR;
        watchdog.note(&same, now);
        assert!(watchdog.feed(now));
        assert!(!watchdog.feed(now + Duration::from_secs(1)));
        assert_eq!(came(&systemd).len(), 1);
        watchdog.note(&report(2, Some(0.0), true), now);
        assert!(watchdog.feed(now + Duration::from_secs(1)));
    }

    #[test]
    fn watchdog_keeps_last_status_while_collector_is_late() {
        let (mut watchdog, _systemd, start) = start("@gaunt-watchdog-late");
        watchdog.note(&report(0, Some(0.0), true), start);
        watchdog.note(&report(1, Some(2.0), false), start);
        let late = start + BLIND_FOR;
        watchdog.note(&report(2, None, false), late);
        assert!(!watchdog.feed(late));
    }

    #[test]
    fn watchdog_exists_only_when_requested_for_this_process() {
        let now = Instant::now();
        let none = Watchdog::from_environment(|_| None, now).unwrap();
        assert!(none.is_none());
        let other_environment = |name: &str| match name {
            "WATCHDOG_PID" => Some("1".into()),
            name => environment("/run/x")(name),
        };
        assert!(Watchdog::from_environment(other_environment, now).unwrap().is_none());
        let own_environment = |name: &str| match name {
            "WATCHDOG_PID" => Some(process::id().to_string().into()),
            name => environment("/run/x")(name),
        };
        let watchdog = Watchdog::from_environment(own_environment, now).unwrap().unwrap();
        assert_eq!(watchdog.every(), Duration::from_secs(20));
        let wrong_environment = |name: &str| match name {
            "WATCHDOG_USEC" => Some("soon".into()),
            name => environment("/run/x")(name),
        };
        let error = Watchdog::from_environment(wrong_environment, now).unwrap_err().to_string();
        assert!(error.contains("WATCHDOG_USEC") && error.contains("WatchdogSec="), "{error}");
        let long = "/".repeat(200);
        let error = Watchdog::from_environment(environment(&long), now).unwrap_err().to_string();
        assert!(error.contains("NOTIFY_SOCKET"), "{error}");
    }

    #[test]
    fn watchdog_survives_missing_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let (mut watchdog, systemd, start) = start(&path.display().to_string());
        drop(systemd);
        fs::remove_file(&path).unwrap();
        assert!(!watchdog.feed(start));
    }
}
