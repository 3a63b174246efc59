//! Cables of the cell under the cursor of the network map, and the NVLink domains of the fleet: their questions and totals.

use std::collections::BTreeMap;

use gaunt_schema::natural_order;

use gaunt_api::{AnswerTable, Filter, Question, Subject};

/// Most cables that are shown of a cell, the worst first: more than most leaves have on a rail.
const SHOWN_CABLES: usize = 64;

/// Returns the question for the cables of the ports that match a filter: with findings first, then those that are down.
pub(crate) fn cables_question(filter: &str) -> Option<Question> {
    let text = format!(
        "{filter} sort finding, state desc, load desc limit {SHOWN_CABLES} \
         columns node,device,port,leaf,switch_port,state,load,finding"
    );
    Some(Question::Table(Filter::parse(Subject::Ports, &text).ok()?))
}

/// Returns the question for the GPUs in an NVLink domain that is larger than a node.
pub(crate) fn domains_question() -> Option<Question> {
    let text = "has domain sort domain limit 131072 columns domain,lost,finding";
    Some(Question::Table(Filter::parse(Subject::Gpus, text).ok()?))
}

/// Totals of one NVLink domain.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DomainTotals {
    /// Its name.
    pub(crate) name: String,
    /// Its GPUs.
    pub(crate) gpus: usize,
    /// Those whose time is lost.
    pub(crate) lost: f64,
    /// The finding that most of its GPUs have.
    pub(crate) finding: Option<String>,
}

impl DomainTotals {
    /// Returns the totals of all domains, the largest loss first.
    pub(crate) fn of(gpus: &AnswerTable) -> Vec<Self> {
        let [domains, lost, findings] =
            ["domain", "lost", "finding"].map(|name| gpus.find_column(name));
        let mut totals: BTreeMap<&str, (Self, BTreeMap<&str, usize>)> = BTreeMap::new();
        for row in 0..gpus.rows as usize {
            let Some(name) = domains.and_then(|column| column.text_at(row)) else { continue };
            let (domain, kinds) = totals.entry(name.as_str()).or_default();
            domain.gpus += 1;
            domain.lost += lost.and_then(|column| column.number_at(row)).unwrap_or(0.0);
            if let Some(kind) = findings.and_then(|column| column.text_at(row)) {
                *kinds.entry(kind.as_str()).or_default() += 1;
            }
        }
        let mut totals: Vec<Self> = totals
            .into_iter()
            .map(|(name, (domain, kinds))| {
                let most = kinds.into_iter().max_by_key(|(_, count)| *count);
                let finding = most.map(|(kind, _)| kind.to_owned());
                Self { name: name.to_owned(), finding, ..domain }
            })
            .collect();
        totals.sort_by(|a, b| {
            b.lost.total_cmp(&a.lost).then_with(|| natural_order(&a.name, &b.name))
        });
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers::{build_table, number_cells, text_cells};

    #[test]
    fn domains_are_sums_of_their_gpus_and_the_worst_is_first() {
        let table = build_table(
            Subject::Gpus,
            vec![
                ("domain", text_cells(&["d-1", "d-1", "d-2", "d-2"])),
                ("lost", number_cells(&[Some(0.0), Some(0.0), Some(1.0), Some(0.5)])),
                ("finding", text_cells(&["", "", "nvlink_degraded", "nvlink_degraded"])),
            ],
        );
        let totals = DomainTotals::of(&table);
        assert_eq!((totals[0].name.as_str(), totals[0].gpus, totals[0].lost), ("d-2", 2, 1.5));
        assert_eq!(totals[0].finding.as_deref(), Some("nvlink_degraded"));
        assert_eq!((totals[1].name.as_str(), totals[1].finding.clone()), ("d-1", None));
        assert!(cables_question("leaf=a and rail=1").is_some() && domains_question().is_some());
    }
}
