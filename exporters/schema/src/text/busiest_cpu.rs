//! The busiest CPU of a target that exports the times of each CPU: its busy share between two pages.

use crate::{MetricSample, Reading, ScrapedPage, catalogue::host, dialect::MAX_COMPARED_CPUS};

/// Shorter differences are too coarse: the times have steps of 10 ms.
const MIN_SECONDS: f64 = 0.5;

const STEPS_PER_SECOND: f64 = 100.0;

/// The CPU times of the last page that was compared, and the share that it gave.
#[derive(Debug, Default)]
pub(super) struct BusiestCpu {
    /// Steps of 10 ms without work of each CPU, in the order of the page, modulo 2^32.
    idle_steps: Box<[u32]>,
    /// Seconds of all CPUs, with and without work.
    total_seconds: f64,
    share: Option<f64>,
}

/// A decoded page, with what is compared with the page before it.
#[derive(Debug)]
pub(super) struct PageInSequence {
    pub(super) page: ScrapedPage,
    /// The seconds without work of each CPU, in the order of the page; empty if it has none.
    pub(super) cpu_idle: Vec<f64>,
}

impl PageInSequence {
    /// The page, with what the difference to the last one says.
    pub(super) fn compared_with_last(mut self, busiest_cpu: &mut BusiestCpu) -> ScrapedPage {
        busiest_cpu.add_page(&mut self.page, &self.cpu_idle);
        self.page
    }
}

impl BusiestCpu {
    /// Adds the busy share of the busiest CPU to the page, if it has the seconds without work of each CPU, as an
    /// earlier page had. Between pages of an exporter that did not read them anew, the share stays.
    fn add_page(&mut self, page: &mut ScrapedPage, idle_seconds: &[f64]) {
        // A CPU that never rested is one whose lines are not all exported.
        let is_complete = !idle_seconds.is_empty()
            && idle_seconds.len() < usize::from(MAX_COMPARED_CPUS)
            && !idle_seconds.contains(&0.0);
        if !is_complete {
            *self = Self::default();
            return;
        }
        let busy = page.report.samples.iter().find(|sample| sample.metric == host::CPU_BUSY);
        let Some((device, Reading::Value(busy))) = busy.map(|one| (one.device, one.reading)) else {
            return;
        };
        let idle_steps: Box<[u32]> = idle_seconds
            .iter()
            .map(|idle| (idle * STEPS_PER_SECOND).round() as u64 as u32)
            .collect();
        let total_seconds = busy + idle_seconds.iter().sum::<f64>();
        let elapsed = (total_seconds - self.total_seconds) / idle_seconds.len() as f64;
        if idle_steps.len() != self.idle_steps.len() || elapsed < 0.0 || !elapsed.is_finite() {
            *self = Self { idle_steps, total_seconds, share: None };
            return;
        }
        if elapsed >= MIN_SECONDS {
            // The kernel may correct the time of a CPU to less: that CPU is not compared.
            let least_idle = idle_steps
                .iter()
                .zip(&self.idle_steps)
                .filter_map(|(now, last)| u32::try_from(now.wrapping_sub(*last).cast_signed()).ok())
                .min();
            let share = least_idle.map(|steps| 1.0 - f64::from(steps) / STEPS_PER_SECOND / elapsed);
            let share = share.map(|share| share.clamp(0.0, 1.0));
            *self = Self { idle_steps, total_seconds, share };
        }
        if let Some(share) = self.share {
            let reading = Reading::of(share);
            page.report.samples.push(MetricSample { metric: host::CPU_BUSIEST, device, reading });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Reading, ScrapedPage,
        catalogue::host,
        text::{PageLimits, TemplateCache, TemplateState},
    };

    /// A page of node_exporter whose CPUs were busy, idle and waiting for these seconds.
    fn page_of_cpus(cpus: &[[f64; 3]]) -> String {
        let lines = cpus.iter().enumerate().map(|(cpu, [user, idle, iowait])| {
            format!(
                "node_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"idle\"}} {idle}\n\
                 node_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"iowait\"}} {iowait}\n\
                 node_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"user\"}} {user}\n"
            )
        });
        lines.collect()
    }

    fn value_of(page: &ScrapedPage, metric: crate::MetricId) -> Option<f64> {
        let mut samples = page.report.samples.iter().filter(|sample| sample.metric == metric);
        let reading = samples.next().map(|sample| sample.reading);
        assert!(samples.next().is_none(), "more than one sample");
        reading.and_then(Reading::value)
    }

    /// The shares that the pages give one after another.
    fn shares(pages: &[String]) -> Vec<Option<f64>> {
        let (cache, mut state) = (TemplateCache::default(), TemplateState::default());
        let limits = PageLimits::default();
        let share = |page: &String| {
            let page = cache.decode_page(&mut state, page.as_bytes(), &limits).unwrap();
            value_of(&page, host::CPU_BUSIEST).map(|share| (share * 1e6).round() / 1e6)
        };
        pages.iter().map(share).collect()
    }

    #[test]
    fn busiest_cpu_is_the_one_with_the_least_time_without_work() {
        let first = page_of_cpus(&[[5e6, 4e7, 100.0], [6e6, 3e7, 0.0], [0.0, 9e7, 0.0]]);
        // 10 s later: 20 % busy, 90 % busy, only waiting.
        let second = page_of_cpus(&[
            [5e6 + 2.0, 4e7 + 8.0, 100.0],
            [6e6 + 9.0, 3e7 + 1.0, 0.0],
            [0.0, 9e7, 10.0],
        ]);
        assert_eq!(shares(&[first.clone(), second.clone()]), [None, Some(0.9)]);
        // A page that the exporter did not renew, one with another set of CPUs, and one after a restart.
        let fewer = page_of_cpus(&[[5e6 + 4.0, 4e7 + 9.0, 100.0], [6e6 + 9.0, 3e7 + 3.0, 0.0]]);
        let restarted = page_of_cpus(&[[4.0, 9.0, 1.0], [9.0, 3.0, 0.0]]);
        let pages = [first, second.clone(), second, fewer, restarted];
        assert_eq!(shares(&pages), [None, Some(0.9), Some(0.9), None, None]);
    }

    #[test]
    fn time_in_the_kernel_is_part_of_the_busy_time_in_any_order_of_modes() {
        for modes in [["user", "softirq", "system"], ["irq", "system", "user"]] {
            let (cache, mut state) = (TemplateCache::default(), TemplateState::default());
            for second in 1..4 {
                let line = |(mode, share): (&&str, f64)| {
                    let seconds = f64::from(second) * share;
                    format!("node_cpu_seconds_total{{cpu=\"0\",mode=\"{mode}\"}} {seconds}\n")
                };
                let body: String = modes.iter().zip([1.0, 2.0, 4.0]).map(line).collect();
                let limits = PageLimits::default();
                let page = cache.decode_page(&mut state, body.as_bytes(), &limits).unwrap();
                let kernel = if modes[0] == "user" { 6.0 } else { 3.0 };
                let seconds = |metric| value_of(&page, metric).map(|it| it / f64::from(second));
                assert_eq!(seconds(host::CPU_BUSY), Some(7.0), "{modes:?}");
                assert_eq!(seconds(host::CPU_KERNEL), Some(kernel), "{modes:?}");
            }
            assert_eq!(cache.cache_stats().repeated, 2);
        }
    }

    #[test]
    fn sums_are_the_same_with_and_without_a_template() {
        let (cache, mut state) = (TemplateCache::default(), TemplateState::default());
        let limits = PageLimits::default();
        for second in 0..4 {
            let second = f64::from(second);
            let body = page_of_cpus(&[[second, 2.0 * second, 1.0], [second, second, 2.0 + second]]);
            let page = cache.decode_page(&mut state, body.as_bytes(), &limits).unwrap();
            assert_eq!(value_of(&page, host::CPUS), Some(2.0));
            assert_eq!(value_of(&page, host::CPU_BUSY), Some(2.0 * second));
            assert_eq!(value_of(&page, host::CPU_IOWAIT), Some(3.0 + second));
        }
        assert_eq!(cache.cache_stats().repeated, 3);
    }

    #[test]
    fn pages_without_idle_time_say_nothing() {
        let pages = [0.0, 10.0].map(|busy| {
            let all = page_of_cpus(&[[busy, 5.0, 0.0], [busy, 7.0, 0.0]]);
            all.lines().filter(|line| !line.contains("idle")).collect::<Vec<_>>().join("\n") + "\n"
        });
        assert_eq!(shares(&pages), [None, None]);
    }

    #[test]
    fn sum_of_all_cpus_has_no_busiest() {
        let pages = [0.0, 10.0].map(|busy| {
            page_of_cpus(&[[busy, 5.0 + busy, 1.0]]).replace("cpu=\"0\"", "cpu=\"all\"")
        });
        assert_eq!(shares(&pages), [None, None]);
    }

    #[test]
    fn own_series_take_precedence() {
        let own = "gaunt_node_cpu_busy_seconds_total 7\ngaunt_node_busiest_cpu_ratio 0.25\n";
        let [first, second] =
            [0.0, 10.0].map(|busy| format!("{own}{}", page_of_cpus(&[[busy, 5.0, 0.0]])));
        assert_eq!(shares(&[first, second]), [Some(0.25), Some(0.25)]);
    }
}
