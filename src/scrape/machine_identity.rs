//! Machine identity: detects that another machine answers at an address.

use gaunt_schema::{CowList, InfoSeries, SanitizedText, ScrapedPage, catalogue::gpu};

/// The label of a GPU that is unique to it.
const UUID: &str = "uuid";

/// The identity of a machine, as far as its page reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MachineIdentity {
    node: Option<SanitizedText>,
    gpus: Vec<SanitizedText>,
    /// The list that this was read from, so that a page that repeats it need not be parsed again.
    source_infos: CowList<InfoSeries>,
}

impl MachineIdentity {
    /// The identity on this page.
    pub(super) fn of(page: &ScrapedPage) -> Self {
        let infos = page.report.infos.iter().filter(|info| info.metric == gpu::INFO);
        let labels = infos.flat_map(|info| &info.labels);
        let mut gpus: Vec<SanitizedText> = labels
            .filter(|(name, value)| *name == UUID && !value.is_empty())
            .map(|(_, value)| value.clone())
            .collect();
        gpus.sort_unstable();
        Self { node: page.report.node.clone(), gpus, source_infos: page.report.infos.clone() }
    }

    /// Whether the page certainly reports the same identity.
    pub(super) fn is_unchanged_in(&self, page: &ScrapedPage) -> bool {
        self.source_infos.ptr_eq(&page.report.infos) && self.node == page.report.node
    }

    /// Whether `now` is another machine: its name differs, or none of its GPUs was there before. A page that
    /// reports less than before proves nothing.
    pub(super) fn is_replaced_by(&self, now: &Self) -> bool {
        let renamed = matches!((&self.node, &now.node), (Some(before), Some(now)) if before != now);
        let both_have_gpus = !self.gpus.is_empty() && !now.gpus.is_empty();
        let all_gpus_new = now.gpus.iter().all(|gpu| self.gpus.binary_search(gpu).is_err());
        renamed || both_have_gpus && all_gpus_new
    }

    /// Adds what a later page of the same machine reports.
    pub(super) fn update_from(&mut self, now: Self) {
        self.node = now.node.or(self.node.take());
        self.source_infos = now.source_infos;
        if !now.gpus.is_empty() {
            self.gpus = now.gpus;
        }
    }

    /// A short description for the log.
    pub(super) fn describe_machine(&self) -> String {
        let name = self.node.as_deref().unwrap_or("an unnamed machine");
        match self.gpus.first() {
            Some(first) => format!("{name} with {} GPUs, the first {first}", self.gpus.len()),
            None => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_identity(node: Option<&str>, gpus: &[&str]) -> MachineIdentity {
        let gpus = gpus.iter().map(|gpu| SanitizedText::new(gpu)).collect();
        MachineIdentity {
            node: node.map(SanitizedText::new),
            gpus,
            source_infos: CowList::default(),
        }
    }

    #[test]
    fn replaced_machine_is_distinguished_from_swapped_board_and_missing_data() {
        let before = sample_identity(Some("gpu1"), &["A", "B"]);
        for (now, replaced) in [
            (sample_identity(Some("gpu1"), &["A", "B"]), false),
            (sample_identity(Some("gpu1"), &["A", "C"]), false),
            (sample_identity(Some("gpu1"), &["C", "D"]), true),
            (sample_identity(Some("gpu2"), &["A", "B"]), true),
            (sample_identity(Some("gpu1"), &[]), false),
            (sample_identity(None, &["A", "B"]), false),
            (sample_identity(None, &["C"]), true),
            (sample_identity(None, &[]), false),
        ] {
            assert_eq!(before.is_replaced_by(&now), replaced, "{now:?}");
        }
        assert!(
            !MachineIdentity::default().is_replaced_by(&before),
            "the first page replaces nobody"
        );
    }

    #[test]
    fn identity_is_kept_where_later_pages_lack_it() {
        let mut identity = sample_identity(Some("gpu1"), &["A"]);
        identity.update_from(sample_identity(None, &[]));
        assert_eq!(identity, sample_identity(Some("gpu1"), &["A"]));
        identity.update_from(sample_identity(None, &["A", "B"]));
        assert_eq!(identity.describe_machine(), "gpu1 with 2 GPUs, the first A");
    }
}
