//! Signals of the operating system for programs that run until one ends them: none is lost between the first line of `main`
//! and the main loop.

mod service_signals;
mod signal_mask;

pub use service_signals::{EndSignal, HangUpAction, HeldSignals, ReloadSignal, ServiceSignals};
pub use signal_mask::BlockedSignals;
