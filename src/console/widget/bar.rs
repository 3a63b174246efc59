//! Stacked bar: computes the number of columns of each amount.

/// Distributes `columns` among `amounts` with fair rounding; every non-zero amount gets at least one column, as long
/// as there are enough: one hung GPU of 10,000 must be visible.
pub(crate) fn share_columns(amounts: &[u64], columns: usize) -> Vec<usize> {
    let total: u64 = amounts.iter().sum();
    if total == 0 || columns == 0 {
        return vec![0; amounts.len()];
    }
    let exact = |amount: u64| amount as f64 * columns as f64 / total as f64;
    let mut shares: Vec<usize> =
        amounts.iter().map(|&a| if a > 0 { (exact(a) as usize).max(1) } else { 0 }).collect();
    loop {
        let used: usize = shares.iter().sum();
        // The largest rounding error decides which amount gains or loses the next column.
        let lacks = |at: usize| exact(amounts[at]) - shares[at] as f64;
        let candidates = (0..amounts.len()).filter(|&at| amounts[at] > 0);
        let next = match used.cmp(&columns) {
            std::cmp::Ordering::Equal => return shares,
            std::cmp::Ordering::Less => candidates.max_by(|&a, &b| lacks(a).total_cmp(&lacks(b))),
            std::cmp::Ordering::Greater => candidates
                .filter(|&at| shares[at] > 1)
                .min_by(|&a, &b| lacks(a).total_cmp(&lacks(b))),
        };
        match next {
            Some(at) if used < columns => shares[at] += 1,
            Some(at) => shares[at] -= 1,
            // More amounts than columns: the last ones are not drawn.
            None => return shares,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_columns_add_up_and_no_share_vanishes() {
        assert_eq!(share_columns(&[9_999, 1], 50), [49, 1]);
        assert_eq!(share_columns(&[1, 1, 1], 10).iter().sum::<usize>(), 10);
        assert_eq!(share_columns(&[0, 5], 7), [0, 7]);
        assert_eq!(share_columns(&[], 7), Vec::<usize>::new());
        assert_eq!(share_columns(&[0, 0], 7), [0, 0]);
        assert_eq!(share_columns(&[1, 1, 1], 2), [1, 1, 1]);
    }

    #[test]
    fn bar_columns_follow_the_amounts() {
        assert_eq!(share_columns(&[641, 98, 152, 31, 26, 52], 100), [64, 10, 15, 3, 3, 5]);
    }
}
