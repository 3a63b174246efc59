//! Log thinning: a target that misbehaves at each scrape writes few lines, and the next one says how many are missing.

use std::time::Duration;

use gaunt_schema::UnixMs;

/// The shortest and the longest time between two lines of a target; it doubles with each.
const SHORTEST: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_hours(1);

/// The lines of one target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogThinning {
    /// When the last line was written, and the time until the next.
    last: Option<(UnixMs, Duration)>,
    omitted: u64,
}

impl LogThinning {
    /// Whether a line may be written now: then the number of lines that were omitted before it.
    pub(super) fn admit_line(&mut self, now: UnixMs) -> Option<u64> {
        let wait = match self.last {
            None => SHORTEST,
            Some((last, wait)) if now.duration_since(last) >= wait => {
                // A target that was quiet for long begins anew.
                if now.duration_since(last) >= wait + LONGEST { SHORTEST } else { wait * 2 }
            }
            Some(_) => {
                self.omitted += 1;
                return None;
            }
        };
        self.last = Some((now, wait.min(LONGEST)));
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_that_misbehaves_all_day_writes_few_lines() {
        let mut thinning = LogThinning::default();
        let lines: Vec<(i64, u64)> = (0..86_400)
            .filter_map(|second| Some((second, thinning.admit_line(UnixMs(second * 1_000))?)))
            .collect();
        assert_eq!(lines[..4], [(0, 0), (60, 59), (180, 119), (420, 239)]);
        assert!(lines.len() < 32, "{} lines", lines.len());
        let later = UnixMs(2 * 86_400_000);
        assert_eq!(thinning.admit_line(later).is_some(), thinning.omitted == 0);
        assert_eq!(thinning.admit_line(later + SHORTEST), Some(0), "it begins anew");
    }
}
