//! Ports of RDMA devices, from `class/infiniband`: each device on a thread of its own, so that firmware that does not
//! answer costs one card and not the network.

use std::{io, path::PathBuf, time::Duration};

use gaunt_schema::{Report, catalogue::port};

use super::{CollectError, Collector, Outcome, round::Crew};
use crate::{Options, exclude::Exclude, files::names, pci};

mod card;
mod counters;
mod rails;

use card::Card;
use rails::Rails;

/// The most devices that are reported: four times the largest host, which has one for each GPU and the storage.
const MAX_DEVICES: usize = 64;

/// How many devices keep their files open: 8 ports of about 70 files are 560 of the usual 1,024 descriptors.
const KEPT_DEVICES: usize = 8;

/// Reads `SYS/class/infiniband/*`.
pub(super) struct Ports {
    sys_root: PathBuf,
    folder: PathBuf,
    exclude: Exclude,
    deadline: Duration,
    names: Vec<String>,
    crew: Crew,
    /// The order of the rails, where the settings say it.
    order: Vec<String>,
    rails: Rails,
}

impl Ports {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            sys_root: options.sys_root.clone(),
            folder: options.sys_root.join("class/infiniband"),
            exclude: Exclude::new(&options.exclude),
            // The round ends before its own round does.
            deadline: options.round_deadline() * 3 / 5,
            names: Vec::new(),
            crew: Crew::default(),
            order: options.rails.clone(),
            rails: Rails::new(),
        }
    }

    /// Looks which devices there are. One that is excluded is not touched: on some hosts a read is a line in the
    /// kernel's log.
    fn discover(&mut self) -> io::Result<()> {
        let mut found = match names(&self.folder) {
            Ok(found) => found,
            // Without an RDMA driver the folder is not there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        found.retain(|name| !self.exclude.leaves_alone(name));
        found.truncate(MAX_DEVICES);
        if found == self.names {
            return Ok(());
        }
        self.crew.retain(|name| found.iter().any(|it| it == name));
        for (at, name) in found.iter().enumerate() {
            if !self.crew.has(name) {
                let card = Card::new(&self.sys_root, name, at < KEPT_DEVICES);
                self.crew.add(Box::new(card));
            }
        }
        let gpus = pci::gpus(&self.sys_root);
        let card = |name: &String| rails::Card::of(name, &self.folder.join(name), &gpus);
        let cards: Vec<_> = found.iter().map(card).collect();
        let said = rails::said(&cards, &self.order);
        self.rails = if self.order.is_empty() { rails::found(&cards) } else { said };
        self.names = found;
        Ok(())
    }
}

impl Collector for Ports {
    fn name(&self) -> &'static str {
        "ports"
    }

    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError> {
        if let Err(source) = self.discover() {
            return Err(CollectError::Read { path: self.folder.clone(), source });
        }
        if self.names.is_empty() {
            let why = format!("no RDMA device in {}", self.folder.display());
            return Ok(Outcome::Nothing(why));
        }
        let now = report.node_time.unwrap_or_default();
        let (mut failed, mut said) = (Vec::new(), Vec::new());
        for ran in self.crew.run(now, self.deadline, report) {
            match ran.outcome {
                Err(error) => failed.push(format!("{}: {error}", ran.name)),
                Ok(Outcome::Nothing(why)) => said.push(format!("{}: {why}", ran.name)),
                Ok(_) => {}
            }
        }
        let devices = &report.devices;
        for info in report.infos.iter_mut().filter(|info| info.metric == port::INFO) {
            let key = devices.get(info.device as usize).map(|device| &*device.key);
            if let Some([device, number]) = key
                && let Some((rail, by)) = self.rails.get(&(device.clone(), number.clone()))
            {
                info.labels.push(("rail".into(), rail.to_string().into()));
                info.labels.push(("rail_by".into(), (*by).into()));
            }
        }
        if !failed.is_empty() {
            return Err(CollectError::Devices(failed.join("; ")));
        }
        if said.is_empty() {
            return Ok(Outcome::Found);
        }
        Ok(Outcome::FoundThat { message: said.join("; "), at: None })
    }
}
