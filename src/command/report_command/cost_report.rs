//! Sums of a report: in total, and by state, cause, job, user and GPU model.

use std::{collections::BTreeMap, time::Duration};

use gaunt_schema::{GpuState, SanitizedText, UnixMs, natural_order, time::format_duration};
use serde::Serialize;

use super::GpuPrices;
use gaunt_api::{LossCause, UsageReport, UsageRow, gpu_time::NO_JOB};

/// The user of unallocated GPUs.
const NOBODY: &str = "(nobody)";

/// The model of GPUs that report none.
const MODEL_UNKNOWN: &str = "(model unknown)";

/// The user of jobs whose user no label names.
const USER_UNKNOWN: &str = "(user unknown)";

/// Content of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostReport {
    /// Cluster name; empty if not set.
    pub cluster: SanitizedText,
    /// Start of the counted time.
    pub from: UnixMs,
    /// Its end.
    pub until: UnixMs,
    /// Seconds observed.
    pub watched_seconds: f64,
    /// Currency of all costs; empty if there are several.
    pub currency: String,
    /// Total.
    pub total: CostReportSum,
    /// By judged GPU state.
    pub by_state: Vec<CostReportSum>,
    /// Lost part by cause: kind of the finding that it is attributed to, `idle` or `unexplained`.
    pub by_cause: Vec<CostReportSum>,
    /// By job.
    pub by_job: Vec<CostReportSum>,
    /// By user of the job.
    pub by_user: Vec<CostReportSum>,
    /// By GPU model.
    pub by_model: Vec<CostReportSum>,
    /// By cluster, if several are joined.
    pub by_cluster: Vec<CostReportSum>,
    /// Each job in each state on each GPU model.
    pub rows: Vec<CostReportRow>,
}

/// One sum.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CostReportSum {
    /// Key of the sum: a state, a job, a user, a model.
    pub of: String,
    /// Job name, if the key is a job that has one.
    pub name: Option<SanitizedText>,
    /// User of the job, likewise.
    pub user: Option<SanitizedText>,
    /// Account of the job, likewise.
    pub account: Option<SanitizedText>,
    /// Time of all GPUs, in hours.
    pub gpu_hours: f64,
    /// The lost part: lost GPUs summed over time.
    pub lost_gpu_hours: f64,
    /// Cause of the largest lost part.
    pub lost_most_to: Option<&'static str>,
    /// Energy of the GPUs in kilowatt-hours; none if none of them reports it.
    pub energy_kwh: Option<f64>,
    /// Cost of the GPU-hours; none unless all of them have a price, in one currency.
    pub cost: Option<f64>,
    /// Cost of the lost part, likewise.
    pub lost_cost: Option<f64>,
    /// The costs in each currency.
    pub costs: Vec<CurrencyCost>,
    /// CO2 of the energy in kilograms; none without a factor.
    pub co2_kg: Option<f64>,
}

/// The costs of a sum in one currency.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CurrencyCost {
    /// The currency.
    pub currency: String,
    /// Cost of the GPU-hours with a price in it; none if GPU-hours of the sum have no price at all.
    pub cost: Option<f64>,
    /// Cost of the lost part, likewise.
    pub lost_cost: Option<f64>,
}

/// One row: one job, one state, one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostReportRow {
    /// The cluster, if several are joined.
    pub cluster: Option<SanitizedText>,
    /// The job; none for unallocated GPUs.
    pub job: Option<SanitizedText>,
    /// Its job name.
    pub name: Option<SanitizedText>,
    /// Its user.
    pub user: Option<SanitizedText>,
    /// Its account.
    pub account: Option<SanitizedText>,
    /// The GPU model.
    pub model: Option<SanitizedText>,
    /// The state.
    pub state: GpuState,
    /// Whether any of its time is lost.
    pub lost: bool,
    /// Cause of the lost time: a finding kind, `idle` or `unexplained`.
    pub cause: Option<&'static str>,
    /// Time of all these GPUs in hours.
    pub gpu_hours: f64,
    /// The lost part.
    pub lost_gpu_hours: f64,
    /// Their energy in kilowatt-hours.
    pub energy_kwh: Option<f64>,
    /// Their cost.
    pub cost: Option<f64>,
    /// Its currency.
    pub currency: Option<String>,
    /// CO2 of their energy in kilograms.
    pub co2_kg: Option<f64>,
}

impl CostReport {
    /// What all GPU time cost, and the lost part of it, as far as prices are set.
    pub(super) fn describe_cost(&self) -> String {
        let describe = |costs: &CurrencyCost| {
            let amount = |amount: Option<f64>| {
                amount.map_or_else(
                    || format!("unknown in {}, as GPUs have no price", costs.currency),
                    |amount| format!("{amount:.2} {}", costs.currency),
                )
            };
            format!("{}, lost {}", amount(costs.cost), amount(costs.lost_cost))
        };
        let described: Vec<String> = self.total.costs.iter().map(describe).collect();
        if described.is_empty() {
            return "no price set; give one with --price".to_owned();
        }
        let is_known = self.total.costs.iter().all(|costs| costs.cost.is_some());
        described.join("; ") + if is_known { "" } else { "; give one with --price" }
    }

    /// The currencies of the costs.
    pub(super) fn currencies(&self) -> Vec<&str> {
        self.total.costs.iter().map(|costs| costs.currency.as_str()).collect()
    }

    /// The emissions for people.
    pub(super) fn describe_co2(&self) -> String {
        let co2 = self.total.co2_kg.map(|kg| format!("{kg:.3} kg"));
        co2.unwrap_or_else(|| "no factor set; give one with --co2".to_owned())
    }

    /// The observed time for people: `59s`, `15m`, `89d23h`.
    pub(super) fn format_watched(&self) -> String {
        let watched = Duration::try_from_secs_f64(self.watched_seconds.round());
        format_duration(watched.unwrap_or_default())
    }

    /// Computes the report of this usage; rows without a price here have that of their aggregator.
    pub fn of(usage: &UsageReport, prices: &GpuPrices, co2_kg_per_kwh: Option<f64>) -> Self {
        let rows: Vec<CostReportRow> =
            usage.rows.iter().map(|row| CostReportRow::of(row, prices, co2_kg_per_kwh)).collect();
        let text = |value: &Option<SanitizedText>, absent: &str| {
            value.as_ref().map_or_else(|| absent.to_owned(), ToString::to_string)
        };
        let mut by_job = sum_by_key(&rows, |row| text(&row.job, NO_JOB));
        for sum in &mut by_job {
            let is_of_job =
                |row: &&CostReportRow| row.job.as_ref().is_some_and(|job| **job == *sum.of);
            if let Some(row) = rows.iter().find(is_of_job) {
                (sum.name, sum.user) = (row.name.clone(), row.user.clone());
                sum.account.clone_from(&row.account);
            }
        }
        let total = sum_by_key(&rows, |_| "all".to_owned()).pop().unwrap_or_default();
        let mut by_cause = sum_by_key(&rows, |row| row.cause.map(str::to_owned));
        by_cause.sort_by(|one, other| other.lost_gpu_hours.total_cmp(&one.lost_gpu_hours));
        Self {
            cluster: usage.cluster.clone(),
            from: usage.from,
            until: usage.at,
            watched_seconds: usage.watched_seconds,
            currency: match total.costs.as_slice() {
                [] => prices.currency.clone(),
                [costs] => costs.currency.clone(),
                _ => String::new(),
            },
            total,
            by_state: sum_by_key(&rows, |row| row.state.to_string()),
            by_cause,
            by_job,
            by_user: sum_by_key(&rows, |row| match (&row.user, &row.job) {
                (None, Some(_)) => USER_UNKNOWN.to_owned(),
                _ => text(&row.user, NOBODY),
            }),
            by_model: sum_by_key(&rows, |row| text(&row.model, MODEL_UNKNOWN)),
            by_cluster: sum_by_key(&rows, |row| row.cluster.as_ref().map(ToString::to_string)),
            rows,
        }
    }
}

impl CostReportRow {
    fn of(row: &UsageRow, prices: &GpuPrices, co2_kg_per_kwh: Option<f64>) -> Self {
        let state = row.state.unwrap_or(GpuState::Unknown);
        let gpu_hours = row.gpu_seconds / 3_600.0;
        let energy_kwh = row.joules.map(|joules| joules / 3.6e6);
        let own_price = prices.of(row.model.as_deref()).map(|price| (price, &*prices.currency));
        let price_of_row =
            own_price.or_else(|| row.price_per_gpu_hour.zip(row.currency.as_deref()));
        Self {
            cluster: row.cluster.clone(),
            job: row.job.clone(),
            name: row.name.clone(),
            user: row.user.clone(),
            account: row.account.clone(),
            model: row.model.clone(),
            state,
            lost: row.lost_gpu_seconds > 0.0,
            cause: row.cause.map(LossCause::as_str),
            gpu_hours,
            lost_gpu_hours: row.lost_gpu_seconds / 3_600.0,
            energy_kwh,
            cost: price_of_row.map(|(price, _)| price * gpu_hours),
            currency: price_of_row.map(|(_, currency)| currency.to_owned()),
            co2_kg: energy_kwh.zip(co2_kg_per_kwh).map(|(kwh, factor)| kwh * factor),
        }
    }
}

impl CostReportRow {
    /// Cost of the lost part.
    fn lost_cost(&self) -> Option<f64> {
        self.cost.map(|cost| cost * self.lost_gpu_hours / self.gpu_hours)
    }
}

/// Sums of rows that share a key, most GPU time first; rows without a key are left out.
fn sum_by_key<K: Into<Option<String>>>(
    rows: &[CostReportRow],
    key: impl Fn(&CostReportRow) -> K,
) -> Vec<CostReportSum> {
    let mut groups: BTreeMap<String, Vec<&CostReportRow>> = BTreeMap::new();
    for row in rows {
        if let Some(key) = key(row).into() {
            groups.entry(key).or_default().push(row);
        }
    }
    let mut sums: Vec<CostReportSum> =
        groups.into_iter().map(|(of, rows)| sum_rows(of, &rows)).collect();
    sums.sort_by(|one, other| {
        let by_hours = other.gpu_hours.total_cmp(&one.gpu_hours);
        by_hours.then_with(|| natural_order(&one.of, &other.of))
    });
    sums
}

fn sum_rows(key: String, rows: &[&CostReportRow]) -> CostReportSum {
    let mut by_cause: BTreeMap<&'static str, f64> = BTreeMap::new();
    for (row, cause) in rows.iter().filter_map(|row| Some((row, row.cause?))) {
        *by_cause.entry(cause).or_default() += row.lost_gpu_hours;
    }
    let main_cause = by_cause.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let costs = sum_costs(rows);
    let single =
        if let [single] = costs.as_slice() { single.clone() } else { CurrencyCost::default() };
    let sum_known = |value: fn(&CostReportRow) -> Option<f64>| {
        rows.iter().filter_map(|row| value(row)).reduce(|one, other| one + other)
    };
    CostReportSum {
        of: key,
        gpu_hours: sum_values(rows.iter().map(|row| row.gpu_hours)),
        lost_gpu_hours: sum_values(rows.iter().map(|row| row.lost_gpu_hours)),
        lost_most_to: main_cause.map(|(cause, _)| cause),
        energy_kwh: sum_known(|row| row.energy_kwh),
        cost: single.cost,
        lost_cost: single.lost_cost,
        costs,
        co2_kg: sum_known(|row| row.co2_kg),
        ..CostReportSum::default()
    }
}

/// The costs in each currency. A sum with an unknown part is unknown.
fn sum_costs(rows: &[&CostReportRow]) -> Vec<CurrencyCost> {
    let is_known = rows.iter().all(|row| row.cost.is_some());
    let is_lost_known = rows.iter().all(|row| row.cost.is_some() || !row.lost);
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for row in rows {
        if let Some((currency, cost)) = row.currency.as_deref().zip(row.cost) {
            let (sum, lost_sum) = sums.entry(currency).or_default();
            *sum += cost;
            *lost_sum += row.lost_cost().filter(|_| row.lost).unwrap_or(0.0);
        }
    }
    let sums = sums.into_iter().map(|(currency, (cost, lost_cost))| CurrencyCost {
        currency: currency.to_owned(),
        cost: is_known.then_some(cost),
        lost_cost: is_lost_known.then_some(lost_cost),
    });
    sums.collect()
}

/// A sum that begins at zero: the standard library's sum of nothing is -0.0.
fn sum_values(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use gaunt_schema::FindingKind;

    use super::{super::report_output, *};

    fn usage_row(job: Option<&str>, state: GpuState, hours: f64, kwh: Option<f64>) -> UsageRow {
        UsageRow {
            job: job.map(SanitizedText::new),
            user: job.map(|_| SanitizedText::new("mira")),
            model: Some(SanitizedText::new("NVIDIA H100")),
            state: Some(state),
            gpu_seconds: hours * 3_600.0,
            joules: kwh.map(|kwh| kwh * 3.6e6),
            ..UsageRow::default()
        }
    }

    fn sample_usage() -> UsageReport {
        UsageReport {
            rows: vec![
                usage_row(Some("7"), GpuState::Computing, 6.0, Some(4.0)),
                UsageRow {
                    cause: Some(LossCause::Finding(FindingKind::ComputeStraggler)),
                    lost_gpu_seconds: 1.25 * 3_600.0,
                    ..usage_row(Some("7"), GpuState::Waiting, 1.5, Some(0.5))
                },
                UsageRow {
                    cause: Some(LossCause::Unexplained),
                    lost_gpu_seconds: 0.25 * 3_600.0,
                    ..usage_row(Some("7"), GpuState::DataStarved, 0.5, None)
                },
                usage_row(None, GpuState::Idle, 2.0, Some(0.2)),
            ],
            ..UsageReport::default()
        }
    }

    #[test]
    fn job_without_a_user_is_not_told_as_nobodys() {
        let mut usage = sample_usage();
        for row in &mut usage.rows {
            row.user = None;
        }
        let report = CostReport::of(&usage, &GpuPrices::default(), None);
        let users: Vec<&str> = report.by_user.iter().map(|sum| sum.of.as_str()).collect();
        assert_eq!(users, [USER_UNKNOWN, NOBODY]);
        assert!(report.describe_cost().ends_with("--price"), "{}", report.describe_cost());
    }

    #[test]
    fn sums_are_those_of_their_rows() {
        let prices = GpuPrices { default: Some(2.0), ..GpuPrices::default() };
        let report = CostReport::of(&sample_usage(), &prices, Some(0.5));
        let total = &report.total;
        assert_eq!((total.gpu_hours, total.lost_gpu_hours), (10.0, 1.5));
        assert_eq!((total.cost, total.lost_cost), (Some(20.0), Some(3.0)));
        assert_eq!(total.lost_most_to, Some("compute_straggler"));
        assert!((total.energy_kwh.unwrap() - 4.7).abs() < 1e-9);
        assert!((total.co2_kg.unwrap() - 2.35).abs() < 1e-9);
        let hours_by_key = |sums: &[CostReportSum]| {
            sums.iter().map(|sum| (sum.of.clone(), sum.gpu_hours)).collect::<Vec<_>>()
        };
        assert_eq!(hours_by_key(&report.by_job), [("7".to_owned(), 8.0), (NO_JOB.to_owned(), 2.0)]);
        assert_eq!(
            hours_by_key(&report.by_user),
            [("mira".to_owned(), 8.0), (NOBODY.to_owned(), 2.0)]
        );
        let causes = [("compute_straggler".to_owned(), 1.25), ("unexplained".to_owned(), 0.25)];
        let lost_hours = |sum: &CostReportSum| (sum.of.clone(), sum.lost_gpu_hours);
        assert_eq!(report.by_cause.iter().map(lost_hours).collect::<Vec<_>>(), causes);
        let hours: f64 = report.by_state.iter().map(|sum| sum.gpu_hours).sum();
        assert!((hours - 10.0).abs() < 1e-9, "{hours}");
    }

    #[test]
    fn joined_clusters_are_summed_and_named_in_each_row() {
        let mut usage = sample_usage();
        for (row, cluster) in usage.rows.iter_mut().zip(["a", "b", "b", "a"]) {
            row.cluster = Some(SanitizedText::new(cluster));
        }
        let report = CostReport::of(&usage, &GpuPrices::default(), None);
        let sums: Vec<_> =
            report.by_cluster.iter().map(|sum| (sum.of.as_str(), sum.gpu_hours)).collect();
        assert_eq!(sums, [("a", 8.0), ("b", 2.0)]);
        assert!(report_output::render_text(&report).contains("\nCLUSTER "));
        let csv = report_output::render_csv(&report);
        assert!(csv.lines().next().unwrap().ends_with(",lost_gpu_hours,cluster"), "{csv}");
        assert!(csv.lines().nth(1).unwrap().ends_with(",0,a"), "{csv}");
        let single = CostReport::of(&sample_usage(), &GpuPrices::default(), None);
        assert!(!report_output::render_text(&single).contains("CLUSTER"));
    }

    #[test]
    fn costs_add_up_in_each_currency() {
        let mut usage = sample_usage();
        for (row, (price, currency)) in
            usage.rows.iter_mut().zip([(2.0, "USD"), (2.0, "USD"), (4.0, "EUR"), (3.0, "EUR")])
        {
            row.price_per_gpu_hour = Some(price);
            row.currency = Some(SanitizedText::new(currency));
        }
        let report = CostReport::of(&usage, &GpuPrices::default(), None);
        let cost = |currency: &str, cost, lost_cost| CurrencyCost {
            currency: currency.to_owned(),
            cost: Some(cost),
            lost_cost: Some(lost_cost),
        };
        assert_eq!(report.total.costs, [cost("EUR", 8.0, 1.0), cost("USD", 15.0, 2.5)]);
        assert_eq!((report.total.cost, report.currency.as_str()), (None, ""));
        assert_eq!(report.describe_cost(), "8.00 EUR, lost 1.00 EUR; 15.00 USD, lost 2.50 USD");
        let idle = &report.by_job[1];
        assert_eq!((idle.cost, &*idle.costs), (Some(6.0), &[cost("EUR", 6.0, 0.0)][..]));

        let own =
            GpuPrices { default: Some(1.0), currency: "CHF".to_owned(), ..GpuPrices::default() };
        let report = CostReport::of(&usage, &own, None);
        assert_eq!((report.total.cost, report.currency.as_str()), (Some(10.0), "CHF"));

        usage.rows[2].price_per_gpu_hour = None;
        let report = CostReport::of(&usage, &GpuPrices::default(), None);
        assert!(report.total.costs.iter().all(|costs| costs.cost.is_none()));
        assert!(report.describe_cost().ends_with("; give one with --price"));
    }

    #[test]
    fn sum_of_nothing_has_no_sign() {
        let rows = vec![usage_row(Some("7"), GpuState::Computing, 6.0, None)];
        let prices = GpuPrices { default: Some(2.0), ..GpuPrices::default() };
        let report = CostReport::of(&UsageReport { rows, ..UsageReport::default() }, &prices, None);
        let job = &report.by_job[0];
        assert_eq!(format!("{:.3}", job.lost_gpu_hours), "0.000");
        assert_eq!(format!("{:.2}", job.lost_cost.unwrap()), "0.00");
    }

    #[test]
    fn costs_without_a_price_or_a_factor_are_unknown() {
        let report = CostReport::of(&sample_usage(), &GpuPrices::default(), None);
        assert_eq!(
            (report.total.cost, report.total.lost_cost, report.total.co2_kg),
            (None, None, None)
        );
        let nothing = CostReport::of(&UsageReport::default(), &GpuPrices::default(), None);
        assert_eq!(nothing.total, CostReportSum::default());
    }
}
