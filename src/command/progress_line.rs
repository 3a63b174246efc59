//! Progress of long work in one line on a terminal: the share that is done, and the time that is left.

use std::{
    io::{self, IsTerminal as _, Write as _},
    pin::pin,
    time::{Duration, Instant},
};

use gaunt_schema::{UnixMs, time::format_duration};
use tokio::time::sleep;

/// Work that takes less shows nothing.
const SHORT: Duration = Duration::from_secs(1);

/// Time between two changes of the line.
const RENEWED: Duration = Duration::from_millis(250);

/// The line on standard error; it is removed at the end. Nothing is written where that is no terminal.
#[derive(Debug)]
pub(super) struct ProgressLine {
    /// What is done.
    work: &'static str,
    /// First and last instant of the work; none if it has no end.
    span: Option<(UnixMs, UnixMs)>,
    begun: Instant,
    written: Option<Instant>,
    is_terminal: bool,
}

impl ProgressLine {
    /// The progress of work that advances from the first instant to the last one.
    pub(super) fn new(work: &'static str, span: (UnixMs, UnixMs)) -> Self {
        Self::with_span(work, Some(span))
    }

    fn with_span(work: &'static str, span: Option<(UnixMs, UnixMs)>) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { work, span, begun: Instant::now(), written: None, is_terminal }
    }

    /// Shows the progress of work that takes this long; without a duration it never ends, and the line shows how long it
    /// has lasted.
    pub(super) async fn show_for(work: &'static str, duration: Option<Duration>) {
        let mut line = Self::with_span(work, duration.map(|span| (UnixMs(0), UnixMs(0) + span)));
        let end = async {
            match duration {
                Some(duration) => sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        let mut end = pin!(end);
        loop {
            line.advance_to(UnixMs(0) + line.begun.elapsed());
            tokio::select! {
                () = &mut end => return,
                () = sleep(RENEWED) => {}
            }
        }
    }

    /// Waits for a part of the work that begins at this instant, and shows meanwhile how far the work is.
    pub(super) async fn during<T>(&mut self, at: UnixMs, part: impl Future<Output = T>) -> T {
        let mut part = pin!(part);
        loop {
            self.advance_to(at);
            tokio::select! {
                result = &mut part => return result,
                () = sleep(RENEWED) => {}
            }
        }
    }

    /// Shows how far the work is, if the last line is old enough.
    pub(super) fn advance_to(&mut self, at: UnixMs) {
        let now = Instant::now();
        let due = self.written.map_or(self.begun + SHORT, |written| written + RENEWED);
        if self.is_terminal && now >= due {
            let lasted = now.duration_since(self.begun);
            let text = describe_progress(self.work, self.span, at, lasted);
            // Without a terminal that accepts it there is nobody to tell. A log line begins where this one does.
            drop(write!(io::stderr(), "{text}\x1b[K\r"));
            self.written = Some(now);
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.written.is_some() {
            drop(write!(io::stderr(), "\x1b[K"));
        }
    }
}

/// Describes the progress at an instant, this long after the start.
fn describe_progress(
    work: &str,
    span: Option<(UnixMs, UnixMs)>,
    at: UnixMs,
    lasted: Duration,
) -> String {
    let Some((first, last)) = span else {
        return format!("gaunt: {work} for {}", format_duration(lasted));
    };
    let whole = last.duration_since(first);
    let share = at.duration_since(first).as_secs_f64() / whole.as_secs_f64().max(1e-3);
    let share = share.clamp(0.0, 1.0);
    let text = format!("gaunt: {work}: {:.0} % of {}", share * 100.0, format_duration(whole));
    if share <= 0.02 {
        return text;
    }
    let left = lasted.mul_f64((1.0 - share) / share);
    format!("{text}, {} left", format_duration(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_share_of_the_recorded_time_and_what_is_left() {
        let span = (UnixMs(0), UnixMs(5_400_000));
        let at = |ms, seconds| {
            describe_progress("judging", Some(span), UnixMs(ms), Duration::from_secs(seconds))
        };
        assert_eq!(at(0, 1), "gaunt: judging: 0 % of 1h30");
        assert_eq!(at(1_350_000, 20), "gaunt: judging: 25 % of 1h30, 1m left");
        assert_eq!(at(9_000_000, 80), "gaunt: judging: 100 % of 1h30, 0s left");
        let instant = (UnixMs(0), UnixMs(0));
        let instant = describe_progress("judging", Some(instant), UnixMs(0), Duration::ZERO);
        assert_eq!(instant, "gaunt: judging: 0 % of 0s");
        let open = describe_progress("recording", None, UnixMs(0), Duration::from_secs(133));
        assert_eq!(open, "gaunt: recording for 2m13");
    }
}
