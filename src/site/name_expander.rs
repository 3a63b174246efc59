//! Name expander: expands host lists of site files under one limit for the whole file.

use gaunt_schema::SanitizedText;

use super::site_error::SiteFault;
use gaunt_scrape::{MAX_NAMES, expand_host_list};

/// How many names the file may still expand to, duplicates included.
#[derive(Debug)]
pub(super) struct NameExpander(usize);

impl Default for NameExpander {
    fn default() -> Self {
        // A fabric of rails names each node eight times.
        Self(16 * MAX_NAMES)
    }
}

impl NameExpander {
    /// Expands the host list of this line.
    pub(super) fn expand_list(
        &mut self,
        list: &str,
        line: usize,
    ) -> Result<Vec<SanitizedText>, SiteFault> {
        let names = expand_host_list(list, self.0.min(MAX_NAMES))
            .map_err(|error| SiteFault::at_line(line, error.to_string()))?;
        self.0 -= names.len();
        Ok(names.iter().map(|name| SanitizedText::new(name)).collect())
    }

    /// The same, but the result must not be empty.
    pub(super) fn expand_non_empty(
        &mut self,
        list: &str,
        line: usize,
    ) -> Result<Vec<SanitizedText>, SiteFault> {
        let names = self.expand_list(list, line)?;
        if names.is_empty() {
            return Err(SiteFault::at_line(
                line,
                "an empty host list; name at least one, such as gpu[001-032]",
            ));
        }
        Ok(names)
    }
}
