//! Sparkline: a history graph with one point per column and a gap where no value is known.

/// Levels from low to high. The full block is not used, because it has another meaning on the screens.
const LEVELS: [&str; 7] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇"];

/// Renders the newest part of `points` in exactly `columns` columns, the present at the right. `top` is the value of
/// the highest level; without it, the largest point is. A column with several points shows the largest of them.
pub(crate) fn render_sparkline(points: &[Option<f32>], top: Option<f32>, columns: usize) -> String {
    let known = || points.iter().flatten().copied().filter(|value| value.is_finite());
    let top = top.unwrap_or_else(|| known().fold(0.0, f32::max));
    render_levels(points, columns, |value| LEVELS[value_level(value, top)])
}

fn render_levels(
    points: &[Option<f32>],
    columns: usize,
    sign: impl Fn(f32) -> &'static str,
) -> String {
    let each = points.len().div_ceil(columns.max(1)).max(1);
    let drawn = points.len().div_ceil(each).min(columns);
    let mut out = " ".repeat(columns - drawn);
    let first = points.len() % each;
    let head = (first > 0).then(|| &points[..first]);
    for group in head.into_iter().chain(points[first..].chunks(each)) {
        let value = group.iter().flatten().copied().filter(|v| v.is_finite()).reduce(f32::max);
        out.push_str(value.map_or(" ", &sign));
    }
    out
}

/// Renders a sparkline with a limit at half of the height: values below it have one of the three lowest levels, values
/// that reach it one of the three highest, so that they are distinct without colour.
pub(crate) fn render_against_limit(points: &[Option<f32>], limit: f32, columns: usize) -> String {
    let half = LEVELS.len() / 2;
    let level = |value: f32| {
        let share = if limit > 0.0 { value / limit } else { 2.0 };
        let (from, part) = if share < 1.0 { (0, share) } else { (half + 1, share - 1.0) };
        LEVELS[from + ((part.max(0.0) * half as f32) as usize).min(half - 1)]
    };
    render_levels(points, columns, level)
}

/// Returns whether a character of [`render_against_limit`] reaches the limit; none for a gap.
pub(crate) fn reaches_limit(sign: char) -> Option<bool> {
    let at = LEVELS.iter().position(|level| level.starts_with(sign))?;
    Some(at > LEVELS.len() / 2)
}

fn value_level(value: f32, top: f32) -> usize {
    if top <= 0.0 {
        return 0;
    }
    let share = (value / top).clamp(0.0, 1.0);
    ((share * (LEVELS.len() - 1) as f32).round() as usize).min(LEVELS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_ends_at_now_and_retains_gaps() {
        assert_eq!(render_sparkline(&[Some(0.0), None, Some(1.0)], Some(1.0), 5), "  ▁ ▇");
        assert_eq!(render_sparkline(&[], None, 3), "   ");
        assert_eq!(render_sparkline(&[Some(0.0), Some(0.0)], None, 2), "▁▁");
        assert_eq!(render_sparkline(&[Some(f32::NAN)], None, 1), " ");
    }

    #[test]
    fn sparkline_is_high_only_at_its_limit() {
        let points = [Some(0.0), Some(0.99), None, Some(1.0), Some(1.4), Some(9.0)];
        assert_eq!(render_against_limit(&points, 1.0, 6), "▁▃ ▅▆▇");
        let reached: Vec<_> =
            render_against_limit(&points, 1.0, 6).chars().map(reaches_limit).collect();
        let yes = Some(true);
        assert_eq!(reached, [Some(false), Some(false), None, yes, yes, yes]);
        assert_eq!(render_against_limit(&[], 0.0, 2), "  ");
    }

    #[test]
    fn sparkline_merges_points_and_retains_peaks() {
        let mut points = vec![Some(0.0); 90];
        points[45] = Some(9.0);
        let drawn = render_sparkline(&points, None, 30);
        assert_eq!(drawn.chars().count(), 30);
        assert_eq!(drawn.matches('▇').count(), 1);
        let odd = render_sparkline(&points[..89], None, 30);
        assert_eq!(odd.chars().count(), 30);
    }
}
