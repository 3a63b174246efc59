//! Names in files of the site: host lists, expanded under one limit for the whole file.

use gaunt_schema::Safe;

use super::fault::Fault;
use crate::gather::{MAX_NAMES, expand};

/// How many names a file may still stand for, and each name once.
#[derive(Debug)]
pub(super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        // A fabric of rails names each node eight times.
        Self(16 * MAX_NAMES)
    }
}

impl Room {
    /// Every name of a host list that stands in this line.
    pub(super) fn expand(&mut self, list: &str, line: usize) -> Result<Vec<Safe>, Fault> {
        let names = expand(list, self.0.min(MAX_NAMES))
            .map_err(|error| Fault::at(line, error.to_string()))?;
        self.0 -= names.len();
        Ok(names.iter().map(|name| Safe::new(name)).collect())
    }

    /// The same, but at least one name must come of it.
    pub(super) fn expand_some(&mut self, list: &str, line: usize) -> Result<Vec<Safe>, Fault> {
        let names = self.expand(list, line)?;
        if names.is_empty() {
            return Err(Fault::at(
                line,
                "an empty host list; name at least one, such as gpu[001-032]",
            ));
        }
        Ok(names)
    }
}
