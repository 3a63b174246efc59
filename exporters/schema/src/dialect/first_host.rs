//! The node of a page: its series may be those of several nodes, which have several GPUs of one number.

use crate::text::TextSample;

/// The node's name on the first series that has it, as it is written there, and its label.
#[derive(Debug, Default)]
pub(super) struct FirstHost(Option<(&'static str, Box<str>)>);

impl FirstHost {
    /// Whether a series is of another node than the first one, by the first of these labels that it has.
    pub(super) fn is_another(
        &mut self,
        labels: &[&'static str],
        sample: &TextSample<'_, '_>,
    ) -> bool {
        let name = labels.iter().find_map(|label| Some((*label, sample.find_label(label)?)));
        let Some((label, name)) = name else { return false };
        let (first, host) = self.0.get_or_insert_with(|| (label, name.raw.into()));
        *first == label && **host != *name.raw
    }
}
