//! Check of the listen address: free, or in use by the service itself.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    path::Path,
};

use super::node_check::NodeCheck;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The name of the service's process.
const OWN_NAME: &str = "gaunt-node";

/// The most processes that are searched.
const MAX_PROCESSES: usize = 65_536;

/// The most open files of one process that are searched.
const MAX_FILES: usize = 65_536;

/// A listening socket: who created it, and its inode.
struct ListeningSocket {
    user: String,
    inode: String,
}

/// Checks that the address can be listened on, or that gaunt-node does so.
pub(super) fn check_listen(listen: SocketAddr, proc_root: &Path) -> NodeCheck {
    let name = "listen address";
    match TcpListener::bind(listen) {
        Ok(_) => NodeCheck::ok(name, &format!("{listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if let Some(process) = find_own_service(listen.port(), proc_root) {
                let text = format!("{listen} is in use by gaunt-node itself, process {process}");
                return NodeCheck::ok(name, &text);
            }
            NodeCheck::missing(
                name,
                &format!("{listen} is in use by another program"),
                "see the owner with `ss -ltnp`, and set --listen to another port",
            )
        }
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => NodeCheck::missing(
            name,
            &format!("{listen} is no address of this node"),
            "set listen to an address that `ip address` shows, or to 0.0.0.0:9770",
        ),
        Err(error) => NodeCheck::missing(
            name,
            &format!("cannot listen on {listen}: {error}"),
            "set listen to a port above 1023",
        ),
    }
}

/// The process named gaunt-node that listens on this port. Without permission to see its files, it counts if its user
/// created the socket.
fn find_own_service(port: u16, proc_root: &Path) -> Option<u32> {
    let sockets: Vec<ListeningSocket> = ["net/tcp", "net/tcp6"]
        .into_iter()
        .flat_map(|table| list_listening(&proc_root.join(table), port))
        .collect();
    let processes = fs::read_dir(proc_root).ok()?.take(MAX_PROCESSES).flatten();
    processes.into_iter().find_map(|process| {
        let id: u32 = process.file_name().to_str()?.parse().ok()?;
        let path = process.path();
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let is_owner =
            name.trim_end() == OWN_NAME && sockets.iter().any(|socket| is_owned_by(socket, &path));
        is_owner.then_some(id)
    })
}

/// Whether a process has this socket.
fn is_owned_by(socket: &ListeningSocket, process: &Path) -> bool {
    match fs::read_dir(process.join("fd")) {
        Ok(files) => {
            let link = format!("socket:[{}]", socket.inode);
            let mut files = files.take(MAX_FILES).flatten();
            files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == &*link))
        }
        Err(_) => effective_user(process).is_some_and(|user| user == socket.user),
    }
}

/// The effective user of a process.
fn effective_user(process: &Path) -> Option<String> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1).map(str::to_owned)
}

/// The sockets of a table that listen on this port.
fn list_listening(table: &Path, port: u16) -> Vec<ListeningSocket> {
    let port = format!(":{port:04X}");
    let text = fs::read_to_string(table).unwrap_or_default();
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, _, _, _, user, _, inode, ..] = fields.as_slice() else {
            return None;
        };
        (local.ends_with(&port) && *state == LISTENING)
            .then(|| ListeningSocket { user: (*user).to_owned(), inode: (*inode).to_owned() })
    };
    text.lines().skip(1).filter_map(parse).collect()
}
