//! Identity: which machine answers at an address, so that another one in its place is noticed.

use gaunt_schema::{Info, Page, Safe, Shared, catalogue::gpu};

/// The label of a GPU that no other GPU has.
const UUID: &str = "uuid";

/// Who answered, as far as its page tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Identity {
    node: Option<Safe>,
    gpus: Vec<Safe>,
    /// Where this was read, so that a page that repeats it need not be looked through.
    told_by: Shared<Info>,
}

impl Identity {
    /// Who wrote this page.
    pub(super) fn of(page: &Page) -> Self {
        let infos = page.report.infos.iter().filter(|info| info.metric == gpu::INFO);
        let labels = infos.flat_map(|info| &info.labels);
        let mut gpus: Vec<Safe> = labels
            .filter(|(name, value)| *name == UUID && !value.is_empty())
            .map(|(_, value)| value.clone())
            .collect();
        gpus.sort_unstable();
        Self { node: page.report.node.clone(), gpus, told_by: page.report.infos.clone() }
    }

    /// Whether the page certainly tells the same.
    pub(super) fn is_of(&self, page: &Page) -> bool {
        self.told_by.is(&page.report.infos) && self.node == page.report.node
    }

    /// Whether `now` is another machine: it calls itself by another name, or not one of its GPUs was there before. A
    /// page that tells less than before proves nothing.
    pub(super) fn is_replaced_by(&self, now: &Self) -> bool {
        let renamed = matches!((&self.node, &now.node), (Some(before), Some(now)) if before != now);
        let told = !self.gpus.is_empty() && !now.gpus.is_empty();
        let strangers = now.gpus.iter().all(|gpu| self.gpus.binary_search(gpu).is_err());
        renamed || told && strangers
    }

    /// Takes what a later page of the same machine tells.
    pub(super) fn learn(&mut self, now: Self) {
        self.node = now.node.or(self.node.take());
        self.told_by = now.told_by;
        if !now.gpus.is_empty() {
            self.gpus = now.gpus;
        }
    }

    /// In a few words, for the log.
    pub(super) fn told(&self) -> String {
        let name = self.node.as_deref().unwrap_or("a machine without a name");
        match self.gpus.first() {
            Some(first) => format!("{name} with {} GPUs, the first is {first}", self.gpus.len()),
            None => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(node: Option<&str>, gpus: &[&str]) -> Identity {
        let gpus = gpus.iter().map(|gpu| Safe::new(gpu)).collect();
        Identity { node: node.map(Safe::new), gpus, told_by: Shared::default() }
    }

    #[test]
    fn another_machine_is_told_from_a_swapped_board_and_from_silence() {
        let before = identity(Some("gpu1"), &["A", "B"]);
        for (now, replaced) in [
            (identity(Some("gpu1"), &["A", "B"]), false),
            (identity(Some("gpu1"), &["A", "C"]), false),
            (identity(Some("gpu1"), &["C", "D"]), true),
            (identity(Some("gpu2"), &["A", "B"]), true),
            (identity(Some("gpu1"), &[]), false),
            (identity(None, &["A", "B"]), false),
            (identity(None, &["C"]), true),
            (identity(None, &[]), false),
        ] {
            assert_eq!(before.is_replaced_by(&now), replaced, "{now:?}");
        }
        assert!(!Identity::default().is_replaced_by(&before), "the first page replaces nobody");
    }

    #[test]
    fn what_was_told_once_is_remembered() {
        let mut known = identity(Some("gpu1"), &["A"]);
        known.learn(identity(None, &[]));
        assert_eq!(known, identity(Some("gpu1"), &["A"]));
        known.learn(identity(None, &["A", "B"]));
        assert_eq!(known.told(), "gpu1 with 2 GPUs, the first is A");
    }
}
