//! Totals per user: what their jobs hold and lose, aggregated from the job table.

use std::collections::BTreeMap;

use gaunt_schema::natural_order;

use gaunt_api::{AnswerTable, Filter, Question, Subject, filter::quote_text};

/// Totals of the jobs of one user.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UserTotals {
    /// Name of the user; empty for jobs without a known user.
    pub(crate) name: String,
    /// Accounts that the jobs are charged to.
    pub(crate) accounts: Vec<String>,
    /// Number of jobs.
    pub(crate) jobs: usize,
    /// GPUs that the jobs hold.
    pub(crate) gpus: f64,
    /// GPUs whose time is lost.
    pub(crate) lost: f64,
    /// Power of their GPUs, if known for any.
    pub(crate) power: Option<f64>,
}

/// Number of accounts named per user.
const ACCOUNTS: usize = 3;

impl UserTotals {
    /// Returns the totals of all users in a job table, the largest loss first.
    pub(crate) fn of(jobs: &AnswerTable) -> Vec<Self> {
        let text = |name: &str, row| {
            jobs.find_column(name).and_then(|c| c.text_at(row)).map_or("", |text| text.as_str())
        };
        let number =
            |name: &str, row| jobs.find_column(name).and_then(|column| column.number_at(row));
        let mut rolls: BTreeMap<&str, Self> = BTreeMap::new();
        for row in 0..jobs.rows as usize {
            let name = text("user", row);
            let roll = rolls.entry(name).or_default();
            roll.jobs += 1;
            roll.gpus += number("gpus", row).unwrap_or(0.0);
            roll.lost += number("lost", row).unwrap_or(0.0);
            if let Some(power) = number("gpu_power", row) {
                *roll.power.get_or_insert(0.0) += power;
            }
            let account = text("account", row);
            let is_listed = roll.accounts.iter().any(|listed| listed == account);
            if !account.is_empty() && !is_listed && roll.accounts.len() < ACCOUNTS {
                roll.accounts.push(account.to_owned());
            }
        }
        let mut rolls: Vec<Self> =
            rolls.into_iter().map(|(name, roll)| Self { name: name.to_owned(), ..roll }).collect();
        rolls.sort_by(|a, b| {
            let most = b.lost.total_cmp(&a.lost).then_with(|| b.gpus.total_cmp(&a.gpus));
            most.then_with(|| natural_order(&a.name, &b.name))
        });
        rolls
    }

    /// Returns the filter for the jobs of this user.
    pub(crate) fn jobs_filter(&self) -> String {
        if self.name.is_empty() {
            "not has user".into()
        } else {
            format!("user={}", quote_text(&self.name))
        }
    }
}

/// Returns the question for every job with its user and losses.
pub(crate) fn users_question() -> Question {
    let text = "limit 131072 columns job,job_name,user,account,gpus,lost,nodes,gpu_power";
    let filter = Filter::parse(Subject::Jobs, text);
    Question::Table(filter.unwrap_or_else(|_| Filter::all_rows(Subject::Jobs)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers;

    #[test]
    fn user_totals_sum_jobs_and_sort_by_loss() {
        let rolls = UserTotals::of(&sample_answers::job_table());
        let totals: Vec<_> =
            rolls.iter().map(|r| (r.name.as_str(), r.jobs, r.gpus, r.lost)).collect();
        assert_eq!(totals, [("alice", 2, 192.0, 60.0), ("", 1, 8.0, 0.0)]);
        assert_eq!(rolls[0].accounts, ["llm", "vision"]);
        assert_eq!((rolls[0].power, rolls[1].power), (Some(90_000.0), None));
        assert_eq!(rolls[0].jobs_filter(), "user=alice");
        assert_eq!(rolls[1].jobs_filter(), "not has user");
    }
}
