//! The restricted console behind a real sshd: sizes, resizes, a line that takes nothing, the hang-up, and no way out of it.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    acknowledgement_access::{FINDING, wait_for_finding},
    binaries::program_path,
    pty::{TestPty, wait_for_some},
    test_process::{RunToEnd, TestProcess, free_port},
};

/// Where OpenSSH's server is in Debian; it is started by its whole path, as it demands.
const SSHD: &str = "/usr/sbin/sshd";

/// A server that lets one key in, for the forced command only.
struct ForcedConsole {
    folder: TempDir,
    server: Child,
    port: u16,
    /// What only this server's consoles have in their arguments.
    mark: String,
    _aggregator: TestProcess,
}

impl ForcedConsole {
    fn start() -> Self {
        let aggregator = TestProcess::start_aggregator(&["--targets", "127.0.0.1:9"]);
        let address = aggregator.served_address();
        wait_for_finding(&address, FINDING);
        let folder = tempfile::tempdir().unwrap();
        for name in ["host", "user"] {
            let path = folder.path().join(name);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path)
                .run_to_end();
            assert!(made.status.success(), "{made:?}");
        }
        let key = fs::read_to_string(folder.path().join("user.pub")).unwrap();
        let mark = format!("--aggregator http://{address} --restricted");
        // The line of README.
        let line =
            format!("restrict,pty,command=\"{} {mark}\" {key}", program_path("gaunt").display());
        fs::write(folder.path().join("authorized_keys"), line).unwrap();
        let port = free_port();
        fs::write(folder.path().join("config"), server_config(folder.path(), port)).unwrap();
        if rustix::process::getuid().is_root() {
            fs::create_dir_all("/run/sshd").unwrap();
            fs::set_permissions("/run/sshd", fs::Permissions::from_mode(0o755)).unwrap();
        }
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let server = Command::new(SSHD)
            .args(["-D", "-e", "-f"])
            .arg(folder.path().join("config"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("openssh-server is installed");
        let this = Self { folder, server, port, mark, _aggregator: aggregator };
        wait_for_some("sshd", || TcpStream::connect(("127.0.0.1", port)).ok());
        this
    }

    /// `ssh` to the server with these options and this remote command.
    fn client_line(&self, options: &str, command: &str) -> String {
        let key = self.folder.path().join("user");
        format!(
            "ssh -F none -i {} -p {} -o BatchMode=yes -o StrictHostKeyChecking=no -o \
             UserKnownHostsFile=/dev/null -o LogLevel=ERROR {options} 127.0.0.1 {command}",
            key.display(),
            self.port
        )
    }

    /// A session on a terminal of this size, once the console is shown. The exit code is written to a file.
    fn open_session(&self, size: (u16, u16)) -> TestPty {
        let client = self.client_line("-tt", "");
        let pty = TestPty::start_sized(
            &format!(
                "stty -a >before; {client}; echo $? >code.new; stty -a >after; mv code.new code"
            ),
            size,
        );
        pty.wait_for_screen("the console", |screen| {
            screen.contains("? keys") && screen.contains("target_down")
        });
        pty
    }

    /// The consoles that run on the server.
    fn running_consoles(&self) -> usize {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let consoles = lines.filter(|line| {
            let text = String::from_utf8_lossy(line).replace('\0', " ");
            text.contains(&self.mark) && !text.contains("sh -c") && !text.contains("serve")
        });
        consoles.count()
    }
}

impl Drop for ForcedConsole {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

fn server_config(folder: &Path, port: u16) -> String {
    let path = |name: &str| -> PathBuf { folder.join(name) };
    format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
         PasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\nPrintMotd no\n\
         PrintLastLog no\nSubsystem sftp internal-sftp\n",
        path("host").display(),
        path("authorized_keys").display()
    )
}

#[test]
fn restricted_console_behind_sshd_follows_its_terminal_and_ends_with_it() {
    let server = ForcedConsole::start();
    let mut pty = server.open_session((80, 24));
    let wide = server.open_session((200, 50));
    let lines = |screen: &str| screen.lines().map(str::to_owned).collect::<Vec<_>>();
    let shown = lines(&pty.screen_text());
    assert!(shown.iter().all(|line| line.chars().count() <= 80) && shown.len() == 24, "{shown:#?}");
    let shown = lines(&wide.screen_text());
    assert!(shown.len() == 50, "{shown:#?}");
    assert!(shown.iter().any(|line| line.chars().count() > 150), "{shown:#?}");

    // The client passes on the new size.
    pty.resize_terminal(132, 43);
    wait_for_some("the larger screen", || {
        let screen = pty.screen_since_clear();
        let last = screen.lines().nth(42)?.to_owned();
        last.contains("? keys").then_some(())
    });

    // A line that takes nothing: the console drops frames, and draws the present screen afterwards.
    wide.set_draining(false);
    wide.press_keys(&"52314".repeat(200));
    wide.press_keys("?");
    wide.set_draining(true);
    wide.wait_for_screen("the keys", |screen| screen.contains("KEYS"));

    // A client that is killed, and one whose terminal goes away.
    assert_eq!(server.running_consoles(), 2);
    pty.hang_up();
    wait_for_some("the end of one console", || (server.running_consoles() == 1).then_some(()));
    wide.press_keys("q");
    wide.press_keys("q");
    assert_eq!(wide.read_file("code").trim(), "0");
    assert_eq!(wide.terminal_modes("after"), wide.terminal_modes("before"));
    wait_for_some("the end of all consoles", || (server.running_consoles() == 0).then_some(()));
}

#[test]
fn restricted_console_behind_sshd_has_no_way_out() {
    let server = ForcedConsole::start();
    let pty = server.open_session((80, 24));
    let start = pty.byte_count();
    for (keys, answer) in [
        (":write csv /tmp/x.csv\r", "no file is written in restricted mode"),
        (":ctx other\r", "no other aggregator is opened in restricted mode"),
        ("\x1a", "the console is not suspended in restricted mode"),
        ("y", "nothing is copied in restricted mode"),
    ] {
        pty.press_keys(keys);
        pty.wait_for_screen(answer, |screen| screen.contains(answer));
        // A prompt whose command is refused stays open.
        pty.press_keys("\x1b");
    }
    let bytes = pty.bytes_from(start);
    assert!(!bytes.windows(5).any(|part| part == b"\x1b]52;"), "nothing reaches the clipboard");

    // Whatever else a client asks for, it gets the forced command.
    let folder = tempfile::tempdir().unwrap();
    let run = |line: &str| {
        Command::new("sh").args(["-c", line]).current_dir(&folder).stdin(Stdio::null()).run_to_end()
    };
    let asked = run(&server.client_line("-T", "'id; cat /etc/passwd'"));
    let text = String::from_utf8_lossy(&asked.stdout);
    assert!(text.contains("target_down") && !text.contains("uid="), "{text}");
    assert!(!text.contains("root:"), "{text}");
    let sftp = run(&server.client_line("-s", "sftp"));
    assert!(!sftp.stdout.starts_with(&[0, 0, 0]), "no SFTP packet: {sftp:?}");
    let forward = free_port();
    let (server_port, line) =
        (server.port, server.client_line("-v -N -o ExitOnForwardFailure=yes", ""));
    let refused =
        run(&format!("timeout 60 {} -R {forward}:127.0.0.1:{server_port}", line.trim_end()));
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("remote port forwarding failed"), "{errors}");
    pty.press_keys("q");
    pty.read_file("code");
}
