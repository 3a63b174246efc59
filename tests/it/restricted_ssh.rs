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
    /// The address of the aggregator.
    address: String,
    _aggregator: TestProcess,
}

impl ForcedConsole {
    fn start() -> Self {
        Self::start_with("", None, &[])
    }

    /// Starts it with these variables of the console, this file for its settings, in which the clipboard is allowed, and these
    /// options of the aggregator.
    fn start_with(variables: &str, settings: Option<&Path>, aggregator: &[&str]) -> Self {
        let aggregator =
            TestProcess::start_aggregator(&[&["--targets", "127.0.0.1:9"], aggregator].concat());
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
        let mark = match settings {
            None => format!("--aggregator http://{address} --restricted"),
            Some(path) => {
                let text = format!(
                    "[console]\naggregator = \"http://{address}\"\nrestricted_copy = true\n"
                );
                fs::write(path, text).unwrap();
                format!("--config {} --restricted", path.display())
            }
        };
        let variables =
            if variables.is_empty() { String::new() } else { format!("env {variables} ") };
        // The line of README.
        let line = format!(
            "restrict,pty,command=\"{variables}{} {mark}\" {key}",
            program_path("gaunt").display()
        );
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
        let this = Self { folder, server, port, mark, address, _aggregator: aggregator };
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
        Self::open_client(&self.client_line("-tt", ""), size)
    }

    /// The same with this line of a shell.
    fn open_client(client: &str, size: (u16, u16)) -> TestPty {
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

    /// The number of consoles that run on the server.
    fn running_consoles(&self) -> usize {
        self.list_consoles().len()
    }

    /// The folders in /proc of the consoles that run on the server.
    fn list_consoles(&self) -> Vec<PathBuf> {
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let consoles = processes.filter(|process| {
            let Ok(line) = fs::read(process.join("cmdline")) else { return false };
            let text = String::from_utf8_lossy(&line).replace('\0', " ");
            text.contains(&self.mark) && !text.contains("sh -c") && !text.contains("serve")
        });
        consoles.collect()
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
         PrintLastLog no\nX11Forwarding yes\nSubsystem sftp internal-sftp\n",
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
    // What a client offers besides a terminal: its agent, its display, a variable.
    let offers = "-tt -A -Y -o SetEnv=GAUNT_TOKEN=token-of-the-client-16";
    let client = format!("DISPLAY=:9 ssh-agent {}", server.client_line(offers, ""));
    let pty = ForcedConsole::open_client(&client, (80, 24));
    let consoles = server.list_consoles();
    assert_eq!(consoles.len(), 1);
    let variables = fs::read(consoles[0].join("environ")).unwrap();
    let variables = String::from_utf8_lossy(&variables);
    assert!(variables.contains("SSH_CONNECTION="), "{variables}");
    for name in ["SSH_AUTH_SOCK=", "DISPLAY=", "GAUNT_TOKEN="] {
        assert!(!variables.contains(name), "{variables}");
    }
    let start = pty.byte_count();
    // Ctrl-\ is a key like others.
    pty.press_keys("\x1c");
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
    // Nor a way to what the server reaches.
    let way = server.client_line(&format!("-W {}", server.address), "");
    let refused = run(&format!("printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' | timeout 60 {way}"));
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("forwarding failed") || errors.contains("prohibited"), "{errors}");
    // Ctrl-C ends the console, and the session with it.
    pty.press_keys("\x03");
    assert_eq!(pty.read_file("code").trim(), "0");
    wait_for_some("the end of the console", || (server.running_consoles() == 0).then_some(()));
}

/// All files below a folder, as paths in it.
fn list_files(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    files.sort_unstable();
    files
}

#[test]
fn restricted_console_behind_sshd_has_no_token_and_no_program_and_writes_preferences_only() {
    const TOKEN: &str = "token-that-visitors-must-not-use";
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    fs::create_dir_all(path("config/gaunt")).unwrap();
    let keys = format!(
        "[[keys]]\nkey = \"S\"\nname = \"plug-in\"\nrun = [\"touch\", {:?}]\nconfirm = false\nbackground = \
         true\n[aliases]\nof_the_user = \"findings\"\n",
        path("ran")
    );
    fs::write(path("config/gaunt/config.toml"), keys).unwrap();
    fs::write(path("token"), TOKEN).unwrap();
    fs::set_permissions(path("token"), fs::Permissions::from_mode(0o600)).unwrap();
    let variables = format!(
        "HOME={} XDG_CONFIG_HOME={} XDG_STATE_HOME={} GAUNT_TOKEN={TOKEN}",
        path(""),
        path("config"),
        path("saved")
    );
    let server = ForcedConsole::start_with(
        &variables,
        Some(&home.path().join("gaunt.toml")),
        &["--token-file", &path("token")],
    );
    let before = list_files(home.path());
    let pty = server.open_session((200, 50));
    // The user's file is read, without its keys that run programs.
    pty.press_keys("?");
    let help = pty.wait_for_screen("the keys", |screen| screen.contains("KEYS"));
    assert!(!help.contains("plug-in"), "{help}");
    pty.press_keys("\x1b");
    pty.wait_for_screen("the overview", |screen| !screen.contains("KEYS"));
    pty.press_keys("S");
    pty.press_keys(":of_the_user\r");
    pty.wait_for_screen("the findings", |screen| screen.contains("a acknowledge"));
    pty.press_keys("a");
    pty.wait_for_screen("the prompt", |screen| screen.contains("note"));
    pty.press_keys("reinstalled\r");
    pty.wait_for_screen("the refusal", |screen| screen.contains("needs the aggregator's token"));
    let finding = wait_for_finding(&server.address, FINDING);
    assert!(finding["acknowledged"].is_null(), "{finding}");
    // These settings allow the clipboard.
    let start = pty.byte_count();
    pty.press_keys("\x1b");
    pty.wait_for_screen("the findings", |screen| screen.contains("a acknowledge"));
    pty.press_keys("y");
    wait_for_some("the copy", || {
        let bytes = pty.bytes_from(start);
        bytes.windows(5).any(|part| part == b"\x1b]52;").then_some(())
    });
    pty.press_keys(":theme light\r");
    let saved = wait_for_some("the preferences", || {
        let files = list_files(home.path());
        files.iter().any(|file| file == "saved/gaunt/console.json").then_some(files)
    });
    pty.press_keys("\x03");
    assert_eq!(pty.read_file("code").trim(), "0");
    let new: Vec<_> = saved.iter().filter(|file| !before.contains(file)).collect();
    assert!(new.len() == 1 && new[0].starts_with("saved/gaunt/"), "{new:?}");
    assert_eq!(list_files(home.path()), saved, "nothing else was written or run");
}
