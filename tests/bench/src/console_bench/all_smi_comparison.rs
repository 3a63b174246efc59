//! Comparison of `all-smi view` and gaunt on the same 500 nodes, served by all-smi's mock farm: bytes and CPU time.

use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};

use super::{
    TIMEOUT,
    bench_terminal::{BenchTerminal, OutputRate},
};

/// Nodes of the farm.
const NODES: usize = 500;

/// The first port of the farm.
const PORT: usize = 20_001;

/// Time until every node was scraped a few times.
const SETTLED: Duration = Duration::from_secs(20);

/// Rates of all-smi and gaunt; `None` if all-smi is not installed.
pub(super) fn compare_all_smi(gaunt: &Path) -> anyhow::Result<Option<[OutputRate; 2]>> {
    let (Some(view), Some(farm)) = (find_program("all-smi"), find_program("all-smi-mock-server"))
    else {
        return Ok(None);
    };
    let folder = tempfile::tempdir()?;
    let write_list = |name: &str, named: bool| -> anyhow::Result<PathBuf> {
        let path = folder.path().join(name);
        let lines = (0..NODES).map(|node| {
            let name = if named { format!("n{node:03}=") } else { String::new() };
            format!("{name}127.0.0.1:{}\n", PORT + node)
        });
        fs::write(&path, lines.collect::<String>())?;
        Ok(path)
    };
    let (hosts, targets) = (write_list("hosts", false)?, write_list("targets", true)?);
    let _farm = AllSmiMockFarm::start_farm(&farm, folder.path())?;
    let measure = |command: &str| -> anyhow::Result<OutputRate> {
        let terminal = BenchTerminal::start_command(command);
        thread::sleep(SETTLED);
        let rate = terminal.measure_rate()?;
        terminal.pty.press_keys("q");
        Ok(rate)
    };
    let peer = measure(&format!("{} view --hostfile {}", view.display(), hosts.display()))?;
    // all-smi scrapes so many nodes every six seconds.
    let ours = measure(&format!(
        "{} --targets-file {} --period 6s 2>log",
        gaunt.display(),
        targets.display()
    ))?;
    Ok(Some([peer, ours]))
}

/// Finds a program in `PATH`.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.exists())
}

/// all-smi's mock farm, killed on drop.
struct AllSmiMockFarm(Child);

impl AllSmiMockFarm {
    fn start_farm(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let range = format!("{PORT}-{}", PORT + NODES - 1);
        let child = Command::new(program)
            .args(["--port-range", &range])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let farm = Self(child);
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", (PORT + NODES - 1) as u16)).is_err() {
            ensure!(begun.elapsed() < TIMEOUT, "all-smi's mock farm does not serve");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(farm)
    }
}

impl Drop for AllSmiMockFarm {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
