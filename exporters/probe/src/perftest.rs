//! perftest between two nodes: `ib_write_bw` from one host's memory to the other's, where NCCL is missing.

use std::{
    io::{self, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The program that measures.
pub(crate) const PROGRAM: &str = "ib_write_bw";

/// The TCP port on which the two sides exchange parameters: perftest's default.
pub(crate) const PORT: u16 = 18_515;

/// Bytes of a message: large enough for full speed on one queue pair.
const MESSAGE: &str = "65536";

/// The number of messages: 5,000 are 328 MB, 7 ms at 400 Gbit/s.
const MESSAGES: &str = "5000";

/// The timeout of both sides together.
const WITHIN: Duration = Duration::from_secs(20);

/// The interval and number of rank 1's attempts to connect to rank 0, whose program may not listen yet.
const AGAIN: Duration = Duration::from_millis(200);
const TRIES: u32 = 25;

/// The maximum output that is read: a table of one line with its heading takes 2 kB.
const MAX_OUTPUT: u64 = 64 << 10;

/// The interval at which the program is checked for its end.
const POLL: Duration = Duration::from_millis(5);

/// One side of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct PerftestSide {
    /// The program, if not the one on the path.
    pub(crate) program: Option<PathBuf>,
    /// The RDMA device and its port.
    pub(crate) device: String,
    pub(crate) port: String,
    /// The TCP port.
    pub(crate) tcp: u16,
}

impl PerftestSide {
    /// The program's path, if it is installed.
    pub(crate) fn find_program(program: Option<&PathBuf>) -> Option<PathBuf> {
        if let Some(program) = program {
            return program.is_file().then(|| program.clone());
        }
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|file| file.is_file())
    }

    /// Starts the server, calls `ready`, and waits for the client. Returns bytes per second.
    pub(crate) fn run_server(&self, ready: &mut dyn FnMut()) -> Result<f64, String> {
        let child = self.spawn_program(None)?;
        ready();
        read_bandwidth(child)
    }

    /// Connects to the server. Returns bytes per second.
    pub(crate) fn run_client(&self, host: &str) -> Result<f64, String> {
        let mut last = String::new();
        for _ in 0..TRIES {
            match read_bandwidth(self.spawn_program(Some(host))?) {
                // Only a failed connection is retried: the server may not listen yet.
                Err(why) if why.contains("onnect") => last = why,
                result => return result,
            }
            thread::sleep(AGAIN);
        }
        Err(last)
    }

    fn spawn_program(&self, host: Option<&str>) -> Result<Child, String> {
        let program = Self::find_program(self.program.as_ref()).ok_or_else(|| {
            format!("{PROGRAM} is not installed: install perftest (`apt install perftest`)")
        })?;
        let mut command = Command::new(&program);
        command.args(["--ib-dev", &self.device, "--ib-port", &self.port]);
        command.args(["--port", &self.tcp.to_string(), "--size", MESSAGE, "--iters", MESSAGES]);
        command.args(["--report_gbits", "--CPU-freq"]).args(host);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))
    }
}

/// Waits for the program's end up to the timeout, and reads its output.
fn read_bandwidth(mut child: Child) -> Result<f64, String> {
    let stdout = child.stdout.take().map(|stdout| thread::spawn(move || read_output(stdout)));
    let error_text =
        child.stderr.take().map(|error_text| thread::spawn(move || read_output(error_text)));
    let end = Instant::now() + WITHIN;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => thread::sleep(POLL),
            Ok(None) => {
                _ = child.kill();
                _ = child.wait();
                return Err(format!("{PROGRAM} did not end within {} s", WITHIN.as_secs()));
            }
            Err(error) => return Err(format!("{PROGRAM}: {error}")),
        }
    };
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let (output, error_text) = (text(stdout), text(error_text));
    if status.success() {
        return parse_bandwidth(&output)
            .ok_or_else(|| format!("{PROGRAM} printed no table that can be parsed"));
    }
    let mut lines = error_text.lines().chain(output.lines()).map(str::trim);
    let why = lines.rfind(|line| !line.is_empty()).unwrap_or("no output");
    Err(format!("{PROGRAM} ended with {status}: {why}"))
}

fn read_output(from: impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error may still contain the reason.
    let _read: io::Result<usize> = from.take(MAX_OUTPUT).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The average bandwidth of the table, in bytes per second.
fn parse_bandwidth(output: &str) -> Option<f64> {
    let mut lines = output.lines().map(str::trim);
    let head = lines.find(|line| line.starts_with("#bytes"))?;
    if !head.contains("BW average[Gb/sec]") {
        return None;
    }
    let average: f64 = lines.next()?.split_whitespace().nth(3)?.parse().ok()?;
    (average.is_finite() && average > 0.0).then_some(average * 1e9 / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perftest_average_is_parsed_with_its_unit() {
        let table = "----\n #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n \
                     65536      5000             392.44             391.20               0.746155\n----\n";
        assert_eq!(parse_bandwidth(table), Some(48.9e9));
        assert_eq!(parse_bandwidth(&table.replace("Gb/sec", "MB/sec")), None);
        assert_eq!(parse_bandwidth(&table.replace("391.20", "nan")), None);
        assert_eq!(parse_bandwidth("nothing"), None);
    }
}
