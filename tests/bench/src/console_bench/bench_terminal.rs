//! A program in a pseudo-terminal of 200 columns and 50 lines, whose output bytes are stored and counted.

use std::{
    fs,
    io::{Read as _, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};

use super::{COUNTED, TIMEOUT};
use crate::bench_process;

/// The end of a synchronized update, which ends a frame.
const FRAME_END: &[u8] = b"\x1b[?2026l";

/// Columns and lines.
pub(super) const SIZE: (u16, u16) = (200, 50);

/// Maximum number of stored bytes.
const KEPT: usize = 8 << 20;

/// A program in its own pseudo-terminal.
pub(super) struct BenchTerminal {
    child: Child,
    keys: ChildStdin,
    output: Arc<Mutex<Vec<u8>>>,
    byte_count: Arc<AtomicUsize>,
    folder: PathBuf,
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
    /// Starts a shell command, which must `exec` the program last.
    pub(super) fn start_command(folder: &Path, command: &str) -> anyhow::Result<Self> {
        let (columns, lines) = SIZE;
        let folder = folder.to_owned();
        let script = format!(
            "stty cols {columns} rows {lines}; echo $$ >{}/pid; {command}",
            folder.display()
        );
        let mut child = Command::new("script")
            .args(["-qfec", &script, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start script, which opens a terminal")?;
        let keys = child.stdin.take().context("script has no standard input")?;
        let mut screen = child.stdout.take().context("script has no standard output")?;
        let (seen, count) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::new(AtomicUsize::new(0)));
        let (kept, counted) = (Arc::clone(&seen), Arc::clone(&count));
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length @ 1..) = screen.read(&mut buffer) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() < KEPT {
                    kept.extend_from_slice(&buffer[..length]);
                }
                drop(kept);
                counted.fetch_add(length, Ordering::Relaxed);
            }
        });
        Ok(Self { child, keys, output: seen, byte_count: count, folder })
    }

    /// Bytes so far.
    pub(super) fn byte_count(&self) -> usize {
        self.byte_count.load(Ordering::Relaxed)
    }

    /// Presses keys.
    pub(super) fn press_keys(&mut self, keys: &[u8]) -> anyhow::Result<()> {
        self.keys.write_all(keys)?;
        self.keys.flush()?;
        Ok(())
    }

    /// Waits for a text.
    pub(super) fn wait_for_text(&self, what: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        let contains = |seen: &[u8]| seen.windows(what.len()).any(|part| part == what.as_bytes());
        while !contains(&self.output.lock().unwrap_or_else(PoisonError::into_inner)) {
            ensure!(begun.elapsed() < TIMEOUT, "{what:?} is not shown in time");
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// The process id of the program.
    pub(super) fn read_pid(&self) -> anyhow::Result<u32> {
        let text = fs::read_to_string(self.folder.join("pid"))?;
        text.trim().parse().context("the shell wrote no process id")
    }

    /// Measures output and CPU use per second.
    pub(super) fn measure_rate(&self) -> anyhow::Result<OutputRate> {
        let pid = self.read_pid()?;
        let (bytes, cpu, begun) =
            (self.byte_count(), bench_process::cpu_seconds(pid)?, Instant::now());
        thread::sleep(COUNTED);
        let span = begun.elapsed().as_secs_f64();
        Ok(OutputRate {
            bytes: (self.byte_count() - bytes) as f64 / span,
            cpu: (bench_process::cpu_seconds(pid)? - cpu) / span * 100.0,
        })
    }

    /// Number of screen cells that changed since the first `from` bytes, as a terminal shows them after each frame.
    pub(super) fn changed_cells(&self, from: usize) -> usize {
        let seen = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let (columns, lines) = SIZE;
        let mut parser = vt100::Parser::new(lines, columns, 0);
        let (before, after) = seen.split_at(from.min(seen.len()));
        parser.process(before);
        let mut shown = parser.screen().clone();
        let (mut rest, mut changed) = (after, 0);
        while let Some(end) = rest.windows(FRAME_END.len()).position(|part| part == FRAME_END) {
            let (frame, next) = rest.split_at(end + FRAME_END.len());
            parser.process(frame);
            let screen = parser.screen();
            let cells = (0..lines).flat_map(|line| (0..columns).map(move |column| (line, column)));
            changed += cells.filter(|(l, c)| screen.cell(*l, *c) != shown.cell(*l, *c)).count();
            shown = screen.clone();
            rest = next;
        }
        changed
    }
}

impl Drop for BenchTerminal {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
