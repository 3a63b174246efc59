//! History graph with several lines: two points per column and four levels per line in braille, or plain characters.

/// The dots of the left and the right half of a cell, from the bottom up.
const DOTS: [[u32; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];

/// Plain characters from low to high for a partly filled line.
const PLAIN: [char; 4] = ['.', ':', '=', '#'];

/// Renders the newest part of `points` in `height` lines of `columns` columns, the highest line first, the present at
/// the right. `top` is the value at the upper edge; without it, the largest point is. Unknown points are blank.
pub(crate) fn render_graph(
    points: &[Option<f32>],
    top: Option<f32>,
    columns: usize,
    height: usize,
    ascii: bool,
) -> Vec<String> {
    let per_column = if ascii { 1 } else { 2 };
    let wanted = columns * per_column;
    let known = || points.iter().flatten().copied().filter(|value| value.is_finite());
    let top = top.filter(|top| *top > 0.0).unwrap_or_else(|| known().fold(0.0, f32::max));
    let levels = height * 4;
    let mut bars: Vec<Option<usize>> = vec![None; wanted.saturating_sub(points.len())];
    let newest = &points[points.len().saturating_sub(wanted)..];
    bars.extend(newest.iter().map(|point| {
        let value = point.filter(|value| value.is_finite())?;
        let share = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
        // A known value is visible, even if it is zero.
        Some(((share * levels as f32).round() as usize).max(1))
    }));
    (0..height)
        .rev()
        .map(|line| bars.chunks(per_column).map(|bars| graph_cell(bars, line * 4, ascii)).collect())
        .collect()
}

/// Returns one cell of a line whose lowest level is `base`.
fn graph_cell(bars: &[Option<usize>], base: usize, ascii: bool) -> char {
    let filled = |bar: Option<usize>| bar.map_or(0, |bar| bar.saturating_sub(base).min(4));
    if ascii {
        return match filled(bars[0]) {
            0 => ' ',
            level => PLAIN[level - 1],
        };
    }
    let dots = bars.iter().zip(DOTS).flat_map(|(bar, dots)| dots.into_iter().take(filled(*bar)));
    let dots = dots.fold(0, |cell, dot| cell | dot);
    if dots == 0 { ' ' } else { char::from_u32(0x2800 + dots).unwrap_or(' ') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_has_two_points_per_column_and_blank_gaps() {
        let points = [Some(0.0), Some(1.0), None, Some(0.5)];
        assert_eq!(render_graph(&points, Some(1.0), 3, 1, false), [" ⣸⢠"]);
        let tall = render_graph(&points, Some(1.0), 2, 2, false);
        assert_eq!(tall, ["⢸ ", "⣸⢸"]);
    }

    #[test]
    fn ascii_graph_shows_the_same_values() {
        let points = [Some(0.0), Some(1.0), None, Some(0.5)];
        assert_eq!(render_graph(&points, Some(1.0), 5, 1, true), [" .# :"]);
        assert!(render_graph(&points, None, 5, 3, true).iter().all(|line| line.is_ascii()));
    }

    #[test]
    fn graph_never_panics_at_any_size() {
        assert_eq!(render_graph(&[], None, 4, 2, false), ["    ", "    "]);
        assert!(render_graph(&[Some(1.0)], None, 0, 2, false).iter().all(String::is_empty));
        assert!(render_graph(&[Some(f32::NAN)], Some(0.0), 1, 0, true).is_empty());
    }
}
