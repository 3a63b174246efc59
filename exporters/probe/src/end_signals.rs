//! SIGTERM and SIGINT where gaunt-probe is the first process of a container: the kernel ends that one only by signals that it
//! handles, so that a container would be killed once its grace period is over.

use std::{io, process, thread};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

/// Exits at SIGTERM and SIGINT, with the code that a shell gives to them. The other processes of the container end with it.
pub(crate) fn exit_on_signals() -> io::Result<()> {
    if process::id() != 1 {
        return Ok(());
    }
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut interrupt) = {
        let _context = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    thread::Builder::new().name("end-signals".to_owned()).spawn(move || {
        let kind = runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => SignalKind::terminate(),
                _ = interrupt.recv() => SignalKind::interrupt(),
            }
        });
        process::exit(128 + kind.as_raw_value());
    })?;
    Ok(())
}
