//! Endpoint lists from flags, settings and files: each item is an address, optionally with a node name.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use gaunt_schema::{SanitizedText, plain_error};

use super::{Endpoint, EndpointDefaults, EndpointNamedBy, parse_address};
use crate::host_list::{self, HostListError, MAX_NAMES};

/// The largest targets file: enough for the maximum number of names, at 200 bytes each.
const MAX_FILE: u64 = 200 * MAX_NAMES as u64;

/// An error in a list of targets.
#[derive(Debug, thiserror::Error)]
pub enum TargetListError {
    /// A host list cannot be read.
    #[error("{origin}: {error}")]
    List {
        /// The origin of the list.
        origin: SanitizedText,
        /// The error in it.
        error: HostListError,
    },
    /// A targets file cannot be read.
    #[error("cannot read targets file {}: {why}; check the path", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// The error of the system.
        why: String,
    },
    /// One address was given two names.
    #[error(
        "target {address} is named {first} in {first_origin} and {second} in {second_origin}; keep \
         one"
    )]
    TwoNames {
        /// The address.
        address: String,
        /// Its first name.
        first: SanitizedText,
        /// The origin of that name.
        first_origin: SanitizedText,
        /// Its second name.
        second: SanitizedText,
        /// The origin of that name.
        second_origin: SanitizedText,
    },
}

/// The endpoints of all lists; an address that appears again is added once.
#[derive(Clone, Debug, Default)]
pub struct EndpointList {
    defaults: EndpointDefaults,
    endpoints: Vec<Endpoint>,
    by_url: HashMap<String, usize>,
}

impl EndpointList {
    /// An empty list with the defaults for what an address leaves out.
    pub fn new(defaults: EndpointDefaults) -> Self {
        Self { defaults, ..Self::default() }
    }

    /// The endpoints, in the order of the lists.
    pub fn into_vec(self) -> Vec<Endpoint> {
        self.endpoints
    }

    /// Whether it has no endpoint.
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Adds a host list. Items are `ADDRESS` or `NODE=ADDRESS`; brackets on both sides expand in step.
    pub fn add_list(&mut self, list: &str, origin: &SanitizedText) -> Result<(), TargetListError> {
        let list_error = |error| TargetListError::List { origin: origin.clone(), error };
        for item in host_list::split_items(list).map_err(list_error)? {
            for endpoint in self.parse_item(list, item, origin).map_err(list_error)? {
                self.add_endpoint(endpoint)?;
            }
        }
        Ok(())
    }

    /// Adds the host lists of a file.
    pub fn add_file(&mut self, path: &Path) -> Result<(), TargetListError> {
        let unreadable = |why: String| TargetListError::File { path: path.to_path_buf(), why };
        let text = read_list_file(path).map_err(|error| unreadable(plain_error::io(&error)))?;
        self.add_text(&text, path)
    }

    /// Adds the text of the file at `path`: one host list per line, `#` starts a comment.
    pub fn add_text(&mut self, text: &str, path: &Path) -> Result<(), TargetListError> {
        for (number, line) in text.lines().enumerate() {
            let list = line.split('#').next().unwrap_or("");
            let origin = SanitizedText::new(&format!("{}:{}", path.display(), number + 1));
            self.add_list(list, &origin)?;
        }
        Ok(())
    }

    fn parse_item(
        &self,
        list: &str,
        (start, text): (usize, &str),
        origin: &SanitizedText,
    ) -> Result<Vec<Endpoint>, HostListError> {
        let max_names = MAX_NAMES - self.endpoints.len();
        let (node, address) = match text.split_once('=') {
            None => (None, (start, text)),
            // A URL with a parameter is no name either, and is refused as a URL.
            Some((node, _)) if node.contains("://") => (None, (start, text)),
            Some((node, address)) => (Some(node), (start + node.len() + 1, address)),
        };
        let addresses = host_list::expand_item(list, address, max_names)?;
        let nodes = match node {
            None => vec![None; addresses.len()],
            Some("") => {
                return Err(host_list::error_at(
                    list,
                    start,
                    "no name before \"=\"; write NODE=ADDRESS",
                ));
            }
            Some(node) => {
                let nodes = host_list::expand_item(list, (start, node), max_names)?;
                nodes.iter().map(|node| Some(SanitizedText::new(node))).collect()
            }
        };
        if nodes.len() != addresses.len() {
            let why = format!(
                "{} names for {} addresses; both sides of \"=\" must expand to as many",
                nodes.len(),
                addresses.len()
            );
            return Err(host_list::error_at(list, start, why));
        }
        let parse_endpoint = |(node, text): (Option<SanitizedText>, String)| {
            let (host, port) = parse_address(&text, self.defaults.port)
                .map_err(|why| host_list::error_at(list, address.0, why))?;
            let EndpointDefaults { scheme, path, .. } = self.defaults.clone();
            let origin = origin.clone();
            Ok(Endpoint {
                scheme,
                host,
                port,
                path,
                node,
                origin,
                named_by: EndpointNamedBy::Operator,
            })
        };
        nodes.into_iter().zip(addresses).map(parse_endpoint).collect()
    }

    fn add_endpoint(&mut self, endpoint: Endpoint) -> Result<(), TargetListError> {
        let address = endpoint.to_string();
        let Some(&index) = self.by_url.get(&endpoint.to_url()) else {
            self.by_url.insert(endpoint.to_url(), self.endpoints.len());
            self.endpoints.push(endpoint);
            return Ok(());
        };
        let existing = &mut self.endpoints[index];
        match (&existing.node, endpoint.node) {
            (Some(first), Some(second)) if *first != second => Err(TargetListError::TwoNames {
                address,
                first: first.clone(),
                first_origin: existing.origin.clone(),
                second,
                second_origin: endpoint.origin,
            }),
            (None, Some(node)) => {
                existing.node = Some(node);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Checks the items of a host list.
pub fn check_host_list(list: &str) -> Result<(), HostListError> {
    let endpoints = EndpointList::default();
    for item in host_list::split_items(list)? {
        endpoints.parse_item(list, item, &SanitizedText::default())?;
    }
    Ok(())
}

/// Reads a file of bounded size.
fn read_list_file(path: &Path) -> io::Result<String> {
    use io::Read as _;

    let mut text = String::new();
    fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_list(list: &str) -> Result<Vec<String>, String> {
        let mut endpoint_list = EndpointList::default();
        endpoint_list.add_list(list, &"--targets".into()).map_err(|error| error.to_string())?;
        let render = |endpoint: &Endpoint| match &endpoint.node {
            None => endpoint.to_string(),
            Some(node) => format!("{node}={endpoint}"),
        };
        Ok(endpoint_list.endpoints.iter().map(render).collect())
    }

    #[test]
    fn addresses_get_the_exporters_port_unless_they_name_one() {
        assert_eq!(
            parse_list("gpu[1-2],b:9100 [::1] [::1]:80 10.0.0.7").unwrap(),
            ["gpu1:9770", "gpu2:9770", "b:9100", "[::1]:9770", "[::1]:80", "10.0.0.7:9770"]
        );
    }

    #[test]
    fn names_and_addresses_expand_in_step() {
        assert_eq!(
            parse_list("gpu[01-02]=10.0.0.[1-2]:9770").unwrap(),
            ["gpu01=10.0.0.1:9770", "gpu02=10.0.0.2:9770"]
        );
    }

    #[test]
    fn address_named_twice_is_added_once_and_keeps_its_name() {
        assert_eq!(parse_list("a[1-3],a2,n2=a2").unwrap(), ["a1:9770", "n2=a2:9770", "a3:9770"]);
        assert_eq!(
            parse_list("x=a,y=a").unwrap_err(),
            "target a:9770 is named x in --targets and y in --targets; keep one"
        );
    }

    #[test]
    fn errors_name_the_position_and_the_correction() {
        let table = [
            // An equals sign inside a bracket splits it in two.
            (
                "gpu[1=2]=10.0.[1-2]:9",
                "--targets: host list \"gpu[1=2]=10.0.[1-2]:9\", character 8: unmatched closing \
                 bracket; remove it",
            ),
            (
                "gpu[1-2=a]",
                "--targets: host list \"gpu[1-2=a]\", character 10: unmatched closing bracket; \
                 remove it",
            ),
            (
                "http://a:9770/metrics",
                "--targets: host list \"http://a:9770/metrics\", character 1: \
                 \"http://a:9770/metrics\" is a URL; write HOST:PORT, the page is /metrics over http",
            ),
            (
                "https://a/m?x=b",
                "--targets: host list \"https://a/m?x=b\", character 1: \"https://a/m?x=b\" is a URL; write HOST:PORT, \
                 the page is /metrics over http",
            ),
            (
                "a,b:99999",
                "--targets: host list \"a,b:99999\", character 3: \"99999\" is not a port; \
                 write a number from 1 to 65535",
            ),
            (
                "a:0",
                "--targets: host list \"a:0\", character 1: \"0\" is not a port; \
                 write a number from 1 to 65535",
            ),
            (
                "fe80::1",
                "--targets: host list \"fe80::1\", character 1: \"fe80::1\" has two colons; \
                 write IPv6 as [ADDRESS]:PORT",
            ),
            (
                "gpu!1",
                "--targets: host list \"gpu!1\", character 1: '!' in host name \"gpu!1\"; allowed \
                 are letters, digits, \"-\", \".\" and \"_\"",
            ),
            (
                "n[1-3]=a[1-2]",
                "--targets: host list \"n[1-3]=a[1-2]\", character 1: 3 names for 2 addresses; \
                 both sides of \"=\" must expand to as many",
            ),
            (
                "=a",
                "--targets: host list \"=a\", character 1: no name before \"=\"; write NODE=ADDRESS",
            ),
            (
                ":9770",
                "--targets: host list \":9770\", character 1: address without a host; write \
                 HOST:PORT",
            ),
        ];
        for (list, expected) in table {
            assert_eq!(parse_list(list).unwrap_err(), expected, "{list}");
        }
    }

    #[test]
    fn file_errors_name_the_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "# racks\ngpu[1-2] # first\n\nc = \nd[1-\n").unwrap();
        let mut list = EndpointList::default();
        let error = list.add_file(file.path()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}:4: host list", file.path().display())), "{error}");
        fs::write(&file, "# racks\ngpu[1-2] # first\n\nc=gpu7:1\n").unwrap();
        let mut list = EndpointList::default();
        list.add_file(file.path()).unwrap();
        assert_eq!(list.into_vec().len(), 3);
        let missing =
            EndpointList::default().add_file(Path::new("/nowhere/t")).unwrap_err().to_string();
        assert_eq!(
            missing,
            "cannot read targets file /nowhere/t: No such file or directory (os error 2); check the path"
        );
    }
}
