//! `gaunt-node doctor`: checks what this node lacks for complete telemetry, with the next step for each check.
//!
//! It only opens files, the driver's library and one listening socket; it calls no driver function, which could hang.

use std::{fmt::Write as _, net::SocketAddr, path::Path};

use crate::{ReadingSource, SamplerOptions, wall_clock, web_access::WebAccess};

mod host_checks;
mod listen_check;
mod node_check;
mod nvidia_checks;

pub use node_check::{NodeCheck, NodeCheckState};

/// Runs all checks for these settings.
pub fn run_checks(options: &SamplerOptions, listen: SocketAddr) -> Vec<NodeCheck> {
    run_checks_at(options, listen, Path::new("/dev"))
}

/// The same, with the device nodes of another folder.
fn run_checks_at(options: &SamplerOptions, listen: SocketAddr, dev_root: &Path) -> Vec<NodeCheck> {
    let has_nvidia = nvidia_checks::has_nvidia_gpu(&options.sys_root);
    let mut checks = vec![listen_check::check_listen(listen, &options.proc_root)];
    if !options.is_enabled(ReadingSource::Nvml) {
        checks.push(NodeCheck::unused("driver", "the settings disable nvml"));
    } else if has_nvidia {
        checks.push(nvidia_checks::check_module(options));
        checks.push(nvidia_checks::check_device_nodes(dev_root));
        checks.push(nvidia_checks::check_library(options));
        checks.push(nvidia_checks::check_kernel_log(options));
    } else {
        checks.push(NodeCheck::unused("driver", "the PCI bus has no NVIDIA GPU"));
    }
    checks.push(host_checks::check_pressure(options));
    checks.push(host_checks::check_processes(options));
    checks.extend(host_checks::check_ports(options));
    checks.push(host_checks::check_kubelet(options));
    checks.push(host_checks::check_folder("textfiles", options.textfiles.as_deref()));
    checks.push(host_checks::check_folder("inspector_logs", options.inspector_logs.as_deref()));
    checks.push(host_checks::check_probe(options));
    checks
}

/// The number of checks that miss something.
pub fn count_missing(checks: &[NodeCheck]) -> usize {
    checks.iter().filter(|check| check.state == NodeCheckState::Missing).count()
}

/// Renders the checks as lines, and their sum.
pub fn render_page(checks: &[NodeCheck]) -> String {
    let mut page = String::new();
    for check in checks {
        let state = match check.state {
            NodeCheckState::Ok => "ok",
            NodeCheckState::Missing => "missing",
            NodeCheckState::Unused => "unused",
        };
        // Writing to a string cannot fail.
        _ = writeln!(page, "{state:<8} {:<15} {}", check.name, check.summary);
        if check.state == NodeCheckState::Missing {
            _ = writeln!(page, "{:8} → {}", "", check.next);
        }
    }
    _ = match count_missing(checks) {
        0 => writeln!(page, "\nNothing is missing in {} checks.", checks.len()),
        missing => writeln!(page, "\nMissing in {missing} of {} checks.", checks.len()),
    };
    page
}

/// Checks that the web configuration can be used, and that clients can accept its certificates by date, order and name.
pub fn check_web_config(path: Option<&Path>) -> NodeCheck {
    let name = "web_config";
    let Some(path) = path else {
        return NodeCheck::unused(name, "everybody may read the page, in plaintext");
    };
    let access = match WebAccess::from_file(path) {
        Ok(access) => access,
        Err(error) => {
            let next = "run it as the user of the service; `gaunt certs` makes certificates, see README, Secure";
            return NodeCheck::missing(name, &error.to_string(), next);
        }
    };
    let path = path.display();
    let Some(chain) = access.server_certificates() else {
        return NodeCheck::ok(name, &format!("{path} is valid, without TLS"));
    };
    match chain.find_fault(wall_clock::now()) {
        Some(fault) => NodeCheck::missing(name, &format!("{path}: {}", fault.what), fault.next),
        None => NodeCheck::ok(name, &format!("{path} is valid; {}", chain.describe())),
    }
}

#[cfg(test)]
mod tests;
