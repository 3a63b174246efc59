//! A program in a pseudo-terminal of 200 columns and 50 lines: the bytes of its output and its CPU time.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;

use super::{COUNTED, TIMEOUT};
use crate::bench_process;

#[path = "../../../it/pty.rs"]
#[expect(dead_code, reason = "the other functions serve the integration tests")]
#[expect(clippy::unwrap_used, reason = "what fails in it ends the benchmark")]
mod pty;

/// The end of a synchronized update, which ends a frame.
const FRAME_END: &[u8] = b"\x1b[?2026l";

/// Columns and lines.
pub(super) const SIZE: (u16, u16) = (200, 50);

/// A program in its own pseudo-terminal.
pub(super) struct BenchTerminal {
    /// The terminal; its folder is the program's home and current folder.
    pub(super) pty: pty::TestPty,
}

/// Output and CPU use of a program per second, averaged over some seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputRate {
    /// Bytes.
    pub(super) bytes: f64,
    /// Percent of a core.
    pub(super) cpu: f64,
}

impl BenchTerminal {
    /// Starts a shell command, which must be the program alone.
    pub(super) fn start_command(command: &str) -> Self {
        let script = format!("echo $$ >pid.new; mv pid.new pid; exec {command}");
        Self { pty: pty::TestPty::start_sized(&script, SIZE) }
    }

    /// Waits until a text is written.
    pub(super) fn wait_for_text(&self, what: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        let contains = |bytes: &[u8]| bytes.windows(what.len()).any(|part| part == what.as_bytes());
        while !contains(&self.pty.bytes_from(0)) {
            ensure!(begun.elapsed() < TIMEOUT, "{what:?} does not appear");
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// The process id of the program.
    pub(super) fn process_id(&self) -> u32 {
        self.pty.program_pid().as_raw_nonzero().get() as u32
    }

    /// Measures output and CPU use per second.
    pub(super) fn measure_rate(&self) -> anyhow::Result<OutputRate> {
        let pid = self.process_id();
        let (bytes, cpu, begun) =
            (self.pty.byte_count(), bench_process::cpu_seconds(pid)?, Instant::now());
        thread::sleep(COUNTED);
        let span = begun.elapsed().as_secs_f64();
        Ok(OutputRate {
            bytes: (self.pty.byte_count() - bytes) as f64 / span,
            cpu: (bench_process::cpu_seconds(pid)? - cpu) / span * 100.0,
        })
    }

    /// Number of screen cells that changed since the first `from` bytes, as a terminal shows them after each frame.
    pub(super) fn changed_cells(&self, from: usize) -> usize {
        let bytes = self.pty.bytes_from(0);
        let (columns, lines) = SIZE;
        let mut parser = vt100::Parser::new(lines, columns, 0);
        let (before, after) = bytes.split_at(from.min(bytes.len()));
        parser.process(before);
        let mut previous = parser.screen().clone();
        let (mut rest, mut changed) = (after, 0);
        while let Some(end) = rest.windows(FRAME_END.len()).position(|part| part == FRAME_END) {
            let (frame, next) = rest.split_at(end + FRAME_END.len());
            parser.process(frame);
            let screen = parser.screen();
            let cells = (0..lines).flat_map(|line| (0..columns).map(move |column| (line, column)));
            changed += cells.filter(|(l, c)| screen.cell(*l, *c) != previous.cell(*l, *c)).count();
            previous = screen.clone();
            rest = next;
        }
        changed
    }
}
