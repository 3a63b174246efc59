//! Parser of `ibnetdiscover` output: the leaf switch of each port, and the switches above it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gaunt_schema::{
    FabricCable, FabricSwitch, NodeLocation, PortLocation, SanitizedText, SourceTopology,
    TopologyOrigin, parse_guid,
};

use super::site_error::{SiteFault, quote_excerpt};

/// The most switches that are read: a fat tree of 100,000 ports has some 5,000.
const MAX_SWITCHES: usize = 20_000;

/// The most cables that are read.
const MAX_CABLES: usize = 2_000_000;

/// Prefixes of lines that do not describe a cable.
const PASSED_OVER: [&str; 8] =
    ["#", "vendid=", "devid=", "sysimgguid=", "switchguid=", "caguid=", "rtguid=", "Chassis"];

/// Prefixes of lines that come before the header of a section.
const SECTION_STARTS: [&str; 5] = ["vendid=", "devid=", "switchguid=", "caguid=", "rtguid="];

/// Names of a switch's own management and collective engines: they are not ports of a node.
const ENGINES: [&str; 2] = ["Aggregation Node", "SHArP"];

/// The most lines that are skipped: a fabric in which more do not answer is not known from this output.
const MAX_SKIPPED: usize = 10_000;

/// How the messages of the tool and of its libraries begin, which `2>&1` writes among its output.
const MESSAGES: [&str; 6] =
    ["src/", "ibwarn:", "ibpanic:", "ibdebug:", "iberror:", "ibnetdiscover:"];

/// Parses the output of `ibnetdiscover`. Messages of the tool among it, and lines that these have cut in two, are skipped
/// and returned; output without any cable is refused with its first invalid line.
pub(super) fn parse_topology(
    text: &str,
    source: SanitizedText,
) -> Result<(SourceTopology, Vec<SiteFault>), SiteFault> {
    let mut fabric = IbnetdiscoverParser::default();
    let mut skipped = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        match fabric.parse_line(line.trim_end()) {
            Ok(()) => {}
            Err(LineFault::Unreadable(what)) => skipped.push(SiteFault::at_line(number, what)),
            Err(LineFault::Limit(what)) => return Err(SiteFault::at_line(number, what)),
        }
        if skipped.len() > MAX_SKIPPED {
            let what = format!(
                "more than {MAX_SKIPPED} lines are no output of `ibnetdiscover`; write it without \
                 its messages: 2>/dev/null"
            );
            return Err(SiteFault::at_line(number, what));
        }
    }
    if fabric.cables == 0 && !skipped.is_empty() {
        return Err(skipped.swap_remove(0));
    }
    if fabric.switches.is_empty() {
        return Err(SiteFault::at_line(
            1,
            "no switch in it; give the whole output of `ibnetdiscover`",
        ));
    }
    Ok((fabric.into_topology(source), skipped))
}

/// Why a line is not read.
#[derive(Debug)]
enum LineFault {
    /// It is no line of the output.
    Unreadable(String),
    /// The fabric is larger than any.
    Limit(String),
}

/// Parser state; switches and adapters by their GUID.
#[derive(Debug, Default)]
struct IbnetdiscoverParser<'a> {
    /// The switch of the current section; none in the section of an adapter or a router.
    current_switch: Option<&'a str>,
    /// Description of each switch.
    switches: BTreeMap<&'a str, &'a str>,
    /// Neighbour switches of each switch.
    adjacent: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// Adapters at each switch.
    adapters: BTreeMap<&'a str, Vec<FabricAdapter<'a>>>,
    cables: usize,
}

/// The end of a cable at an adapter.
#[derive(Clone, Copy, Debug)]
struct FabricAdapter<'a> {
    description: &'a str,
    port: &'a str,
    /// The GUID of the adapter.
    guid: &'a str,
    switch_port: &'a str,
}

impl<'a> IbnetdiscoverParser<'a> {
    fn parse_line(&mut self, line: &'a str) -> Result<(), LineFault> {
        let start = line.trim_start();
        if PASSED_OVER.iter().any(|word| start.starts_with(word)) {
            if SECTION_STARTS.iter().any(|word| start.starts_with(word)) {
                self.current_switch = None;
            }
            return Ok(());
        }
        match start.split_whitespace().next() {
            None => Ok(()),
            Some("Switch") => self.start_switch(line),
            Some("Ca" | "Rt") => {
                self.current_switch = None;
                match first_quoted(start) {
                    Some(_) => Ok(()),
                    None => Err(LineFault::Unreadable(missing_guid_message(line))),
                }
            }
            Some(_) if start.starts_with('[') => self.parse_cable(start).ok_or_else(|| {
                LineFault::Unreadable(format!(
                    "{} is not a cable; write [PORT] \"H-GUID\"[PORT] # \"NAME\" …",
                    quote_excerpt(line)
                ))
            }),
            Some(_) => Err(LineFault::Unreadable(describe_other_line(line))),
        }?;
        if self.cables > MAX_CABLES {
            let what = format!("more than {MAX_CABLES} ends of cables; is this one fabric?");
            return Err(LineFault::Limit(what));
        }
        Ok(())
    }

    fn start_switch(&mut self, line: &'a str) -> Result<(), LineFault> {
        // Without a header, the cables that follow belong to no switch rather than to the one before.
        self.current_switch = None;
        let guid =
            first_quoted(line).ok_or_else(|| LineFault::Unreadable(missing_guid_message(line)))?;
        let comment = line.split_once('#').map_or("", |(_, comment)| comment);
        if self.switches.len() >= MAX_SWITCHES {
            let what = format!("more than {MAX_SWITCHES} switches; is this one fabric?");
            return Err(LineFault::Limit(what));
        }
        self.switches.insert(guid, first_quoted(comment).unwrap_or_default());
        self.current_switch = Some(guid);
        Ok(())
    }

    /// Parses a cable of the current section. Each cable is listed twice, once at either end; the switch's end counts.
    fn parse_cable(&mut self, line: &'a str) -> Option<()> {
        let (peer, comment) = line.split_once('#').unwrap_or((line, ""));
        let guid = first_quoted(peer)?;
        let after = &peer[peer.find(guid)? + guid.len()..];
        let port = after.split_once('[')?.1.split_once(']')?.0;
        let switch_port = line.strip_prefix('[')?.split_once(']')?.0;
        let Some(switch) = self.current_switch else { return Some(()) };
        if guid.starts_with("S-") {
            self.adjacent.entry(switch).or_default().insert(guid);
        } else if let Some(guid) = guid.strip_prefix("H-") {
            let description = first_quoted(comment)?;
            if !ENGINES.iter().any(|engine| description.contains(engine)) {
                let adapter = FabricAdapter { description, port, guid, switch_port };
                self.adapters.entry(switch).or_default().push(adapter);
            }
        }
        self.cables += 1;
        Some(())
    }

    fn into_topology(self, source: SanitizedText) -> SourceTopology {
        let names = self.switch_names();
        let levels = self.switch_levels();
        let mut topology = SourceTopology::new(source, TopologyOrigin::Fabric);
        let mut leaf_by_node: BTreeMap<&str, Option<&SanitizedText>> = BTreeMap::new();
        for (switch, adapters) in &self.adapters {
            let Some(leaf) = names.get(switch) else { continue };
            for FabricAdapter { description, port, guid, switch_port } in adapters {
                if let (Some((node, adapter)), Some(switch_guid)) =
                    (description.split_once(' '), parse_guid(switch))
                {
                    topology.cables.push(FabricCable {
                        switch_guid,
                        switch_port: (*switch_port).into(),
                        node: node.into(),
                        adapter: adapter.trim_matches(['\'', '"', ' ']).into(),
                    });
                }
                let guid = adapter_guid(guid);
                let (node, device) = match adapter_owner(description) {
                    AdapterOwner::Port(node, device) => (node, device),
                    AdapterOwner::Node(node) => {
                        let same_leaf = leaf_by_node
                            .get(node)
                            .is_none_or(|other_leaf| *other_leaf == Some(leaf));
                        leaf_by_node.insert(node, same_leaf.then_some(leaf));
                        (node, "")
                    }
                };
                // Without a device, the GUID alone places the port of a node that reports it.
                if !device.is_empty() || guid.is_some() {
                    topology.ports.push(PortLocation {
                        node: node.into(),
                        device: device.into(),
                        port: Some((*port).into()),
                        guid,
                        rail: None,
                        leaf: Some(leaf.clone()),
                        switch_port: Some((*switch_port).into()),
                    });
                }
            }
        }
        // The port of the node is unknown; the leaf may still be, if all ports are on the same one.
        for (node, leaf) in leaf_by_node {
            let leaf = leaf.cloned();
            topology.nodes.extend(leaf.is_some().then(|| NodeLocation {
                node: node.into(),
                leaf,
                ..NodeLocation::default()
            }));
        }
        for (switch, neighbours) in &self.adjacent {
            let own_level = levels.get(switch);
            let higher =
                |other: &&&str| levels.get(**other).zip(own_level).is_some_and(|(a, b)| a > b);
            let above: Vec<_> = neighbours
                .iter()
                .filter(higher)
                .filter_map(|other| names.get(other).cloned())
                .collect();
            let name = names.get(switch).filter(|_| !above.is_empty());
            let switch = name.map(|name| FabricSwitch { name: name.clone(), above, rail: None });
            topology.switches.extend(switch);
        }
        topology
    }

    /// Number of switches between each switch and the nearest node.
    fn switch_levels(&self) -> HashMap<&'a str, usize> {
        let mut levels: HashMap<&str, usize> = HashMap::new();
        let mut current: Vec<&str> = self.adapters.keys().copied().collect();
        let mut level = 0;
        while !current.is_empty() {
            levels.extend(current.iter().map(|switch| (*switch, level)));
            let next =
                current.iter().filter_map(|switch| self.adjacent.get(switch)).flatten().copied();
            let next: BTreeSet<&str> = next.filter(|switch| !levels.contains_key(switch)).collect();
            current = next.into_iter().collect();
            level += 1;
        }
        levels
    }

    /// A name for each switch: its own if it is unique, else its GUID.
    fn switch_names(&self) -> HashMap<&'a str, SanitizedText> {
        let mut uses: HashMap<String, usize> = HashMap::new();
        for description in self.switches.values() {
            *uses.entry(switch_name(description)).or_default() += 1;
        }
        let name = |(guid, description): (&&'a str, &&str)| {
            let name = switch_name(description);
            let is_unique = uses.get(&name) == Some(&1) && !name.is_empty();
            (*guid, if is_unique { SanitizedText::new(&name) } else { SanitizedText::new(guid) })
        };
        self.switches.iter().map(name).collect()
    }
}

fn missing_guid_message(line: &str) -> String {
    format!(
        "{} has no GUID; a section begins like Switch 40 \"S-GUID\" # \"NAME\"",
        quote_excerpt(line)
    )
}

/// A GUID in the form that nodes report.
fn adapter_guid(digits: &str) -> Option<SanitizedText> {
    let digits = digits.trim_start_matches("0x");
    let is_guid = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_guid.then(|| SanitizedText::new(&digits.to_ascii_lowercase()))
}

fn describe_other_line(line: &str) -> String {
    let what = if MESSAGES.iter().any(|start| line.trim_start().starts_with(start)) {
        "a message of the tool: a device that did not answer may be missing"
    } else {
        "not a line of `ibnetdiscover`; give its unmodified output, without -p, -l or -H"
    };
    format!("{} is {what}", quote_excerpt(line))
}

/// The first quoted text; none if its end is cut off.
fn first_quoted(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('"')?;
    rest.split_once('"').map(|(quoted, _)| quoted)
}

/// A switch's own name: `MF0;leaf-1:MQM9790/U1` is leaf-1; for a chassis the line card stays: `cs-1/L03/U1`.
fn switch_name(description: &str) -> String {
    let Some((host, kind)) = description.split_once(';').and_then(|(_, rest)| rest.split_once(':'))
    else {
        return description.to_owned();
    };
    match kind.split_once('/') {
        Some((_, board)) if board.contains('/') => format!("{host}/{board}"),
        _ => host.to_owned(),
    }
}

/// What an adapter belongs to, as far as its description shows.
enum AdapterOwner<'a> {
    /// A device of a node: `gpu-001 mlx5_0`.
    Port(&'a str, &'a str),
    /// A node, if the adapter is only numbered (`gpu-001 HCA-1`) or has no name.
    Node(&'a str),
}

fn adapter_owner(description: &str) -> AdapterOwner<'_> {
    match description.trim().split_once(' ') {
        Some((node, device)) if !device.starts_with("HCA-") && !device.contains(' ') => {
            AdapterOwner::Port(node, device)
        }
        Some((node, _)) => AdapterOwner::Node(node),
        None => AdapterOwner::Node(description),
    }
}

#[cfg(test)]
mod tests;
