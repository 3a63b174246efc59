//! The driver as the worker asks it: every call stands in this room, and each one degrades alone.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    time::{Duration, Instant},
};

use gaunt_schema::{Absent, Safe};
use nvml_wrapper::{Device, Nvml, error::NvmlError};
use serde::{Deserialize, Serialize};

use super::{
    call::{Call, Note},
    door::{Door, Handle},
    pipe::{Identity, Readings},
};

mod board;
mod events;
mod fields;
mod gpm;
mod links;
mod looks;
mod parts;
mod round;

pub(super) use events::{Came, Waiting};

use board::Board;
use round::Round;

/// The library that the loader is asked for when none is named.
pub(super) const DEFAULT_LIBRARY: &str = "libnvidia-ml.so.1";

/// The driver, initialised, and the note of its calls.
pub(super) struct Driver<'a> {
    nvml: Nvml,
    note: &'a Note,
    wanted: Wanted,
    /// What is kept of each GPU between rounds, by its index.
    boards: Vec<Board>,
    rounds: u64,
}

/// What can be switched off, because it costs more calls than the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each switches one thing off, and none excludes another"
)]
pub(super) struct Wanted {
    /// Activity from the GPU's own counters.
    pub(super) gpm: bool,
    /// Looks between two rounds, and the extremes that they find.
    pub(super) glances: bool,
    /// Errors as they happen.
    pub(super) xid: bool,
    /// Who runs on the GPU.
    pub(super) processes: bool,
}

/// Why there is no driver to talk to.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoDriver {
    /// The loader does not know the library: there is no NVIDIA driver on this machine.
    #[error("no GPU: {0} not found; install the NVIDIA driver or pass --nvml-library")]
    NotInstalled(String),
    /// The library that was named cannot be loaded.
    #[error("cannot load the NVML library {path}: {why}; check --nvml-library")]
    NotLoadable {
        /// Which library.
        path: String,
        /// What the loader said.
        why: NvmlError,
    },
    /// The library is there and the kernel's part of the driver is not.
    #[error("the NVIDIA driver is not loaded; load it with `modprobe nvidia` and see `dmesg`")]
    NotLoaded,
    /// Initialisation failed in another way.
    #[error("NVML cannot be initialised: {0}; try `nvidia-smi`, and see `dmesg`")]
    Failed(NvmlError),
}

impl NoDriver {
    /// Whether there is simply no GPU here.
    pub(super) fn is_nothing_here(&self) -> bool {
        matches!(self, Self::NotInstalled(_))
    }
}

impl<'a> Driver<'a> {
    /// Loads the library and initialises the driver.
    pub(super) fn init(
        library: Option<&OsStr>,
        note: &'a Note,
        wanted: Wanted,
    ) -> Result<Self, NoDriver> {
        let name = library.unwrap_or(DEFAULT_LIBRARY.as_ref());
        let nvml = note.during(Call::Init, None, || Nvml::builder().lib_path(name).init());
        let text = || name.to_string_lossy().into_owned();
        match nvml {
            Ok(nvml) => Ok(Self { nvml, note, wanted, boards: Vec::new(), rounds: 0 }),
            // A path must lead to a library; a bare name is a question to the loader.
            Err(NvmlError::LibloadingError(_)) if !text().contains('/') => {
                Err(NoDriver::NotInstalled(text()))
            }
            Err(why @ (NvmlError::LibloadingError(_) | NvmlError::FailedToLoadSymbol(_))) => {
                Err(NoDriver::NotLoadable { path: text(), why })
            }
            Err(NvmlError::DriverNotLoaded) => Err(NoDriver::NotLoaded),
            Err(why) => Err(NoDriver::Failed(why)),
        }
    }

    /// The driver's version, as far as it tells.
    pub(super) fn version(&self) -> Safe {
        let version =
            self.note.during(Call::DriverVersion, None, || self.nvml.sys_driver_version());
        version.map_or_else(|_| "unknown".into(), Safe::from)
    }

    /// Who the GPUs are.
    pub(super) fn inventory(&mut self) -> Result<Vec<Identity>, NvmlError> {
        let count = self.note.during(Call::Count, None, || self.nvml.device_count())?;
        self.boards = (0..count).map(|_| Board::default()).collect();
        Ok((0..count).map(|index| self.identity(index)).collect())
    }

    fn identity(&self, index: u32) -> Identity {
        let unknown = Identity { index, ..Identity::default() };
        let Ok(device) = self.device(index) else { return unknown };
        let ask = |call, make: &dyn Fn() -> Result<String, NvmlError>| {
            self.note.during(call, Some(index), make).ok().map(Safe::from)
        };
        Identity {
            uuid: ask(Call::Uuid, &|| device.uuid()),
            model: ask(Call::Name, &|| device.name()),
            pci_bus_id: ask(Call::PciInfo, &|| device.pci_info().map(|pci| pci.bus_id)),
            serial: ask(Call::Serial, &|| device.serial()),
            vbios: ask(Call::Vbios, &|| device.vbios_version()),
            ..unknown
        }
    }

    fn device(&self, index: u32) -> Result<Device<'_>, NvmlError> {
        self.note.during(Call::Handle, Some(index), || self.nvml.device_by_index(index))
    }

    /// Everything that one GPU measures now. Failures that are not absences of support are added to `failures`.
    pub(super) fn sample(&mut self, index: u32, failures: &mut BTreeSet<String>) -> Readings {
        // A tenth of the GPUs each round, so that no tick is longer than the others; all of them in the first.
        let turn = (self.rounds + u64::from(index)).is_multiple_of(board::SLOW_EVERY);
        if index as usize + 1 == self.boards.len() {
            self.rounds += 1;
        }
        let Some(board) = self.boards.get_mut(index as usize) else { return Readings::default() };
        let door = Door::new(&self.nvml);
        let device =
            self.note.during(Call::Handle, Some(index), || self.nvml.device_by_index(index));
        let mut round = Round::new(self.note, index, failures);
        match device {
            Ok(device) => {
                board.handle = Some(Door::handle(&device));
                board.round(&mut round, door, &device, self.wanted, turn);
                if round.sampled.lost {
                    board.handle = None;
                }
            }
            Err(error) => {
                board.handle = None;
                let reason = round.reason(Call::Handle, &error);
                // A GPU that is not found does not answer, whatever the driver calls it.
                round.sampled.lost |= reason == Absent::Error;
                board.absent(&mut round, self.wanted, reason);
            }
        }
        round.sampled
    }

    /// Whether the driver is still the one that was initialised, asked now and then: it may have been reloaded, or
    /// count other GPUs. Only a new worker learns what it is then.
    pub(super) fn is_itself(&self) -> bool {
        if !self.rounds.is_multiple_of(board::SLOW_EVERY) {
            return true;
        }
        let count = self.note.during(Call::Count, None, || self.nvml.device_count());
        count.is_ok_and(|count| count as usize == self.boards.len())
    }

    /// A short look at every GPU between two rounds.
    pub(super) fn look(&mut self) {
        let door = Door::new(&self.nvml);
        for (index, board) in self.boards.iter_mut().enumerate() {
            board.look(self.note, door, index as u32, Instant::now());
        }
    }

    /// Begins to wait for XIDs, if they are wanted: after the first round, which found the GPUs, and now and then where
    /// that failed or broke.
    pub(super) fn waiting(&self) -> Option<Waiting> {
        if self.rounds % board::SLOW_EVERY != 1 {
            return None;
        }
        let handles = self.boards.iter().map(|board| board.handle).collect();
        let door = Door::new(&self.nvml);
        self.wanted.xid.then(|| Waiting::begin(self.note, door, handles))?
    }

    /// Waits for an XID for at most this long.
    pub(super) fn wait(&self, waiting: &Waiting, time: Duration) -> Came {
        waiting.wait(self.note, Door::new(&self.nvml), time)
    }

    /// Ends the wait.
    pub(super) fn end(&self, waiting: Waiting) {
        waiting.end(self.note, Door::new(&self.nvml));
    }

    /// Gives the driver back. The wrapper's own way panics if the library has no such function.
    pub(super) fn shutdown(mut self) {
        for (index, board) in self.boards.iter_mut().enumerate() {
            board.free(self.note, Door::new(&self.nvml), index as u32);
        }
        if self.nvml.lib().nvmlShutdown.is_ok() {
            _ = self.note.during(Call::Shutdown, None, || self.nvml.shutdown());
        } else {
            std::mem::forget(self.nvml);
        }
    }
}
