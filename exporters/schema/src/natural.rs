//! Natural order of names: `gpu2` before `gpu10`.

use std::cmp::Ordering;

use crate::SanitizedText;

/// Text order, with runs of digits compared by their value.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while !left.is_empty() && !right.is_empty() {
        let ((left_part, left_rest), (right_part, right_rest)) =
            (split_digits(left), split_digits(right));
        let order = if left_part.is_empty() || right_part.is_empty() {
            let (mut left_chars, mut right_chars) = (left.chars(), right.chars());
            let order = left_chars.next().cmp(&right_chars.next());
            (left, right) = (left_chars.as_str(), right_chars.as_str());
            order
        } else {
            (left, right) = (left_rest, right_rest);
            let (left_part, right_part) =
                (left_part.trim_start_matches('0'), right_part.trim_start_matches('0'));
            left_part.len().cmp(&right_part.len()).then_with(|| left_part.cmp(right_part))
        };
        if order.is_ne() {
            return order;
        }
    }
    // `gpu01` and `gpu1` are two names.
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// A name that is sorted by [`natural_order`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaturalName(pub SanitizedText);

impl Ord for NaturalName {
    fn cmp(&self, other: &Self) -> Ordering {
        natural_order(&self.0, &other.0)
    }
}

impl PartialOrd for NaturalName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The digits at the beginning, and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_by_their_numbers() {
        let mut names = ["gpu10", "gpu2", "gpu02", "gpu", "", "gpu2b", "ä1", "gpu-2"];
        names.sort_by(|left, right| natural_order(left, right));
        assert_eq!(names, ["", "gpu", "gpu-2", "gpu02", "gpu2", "gpu2b", "gpu10", "ä1"]);
    }

    proptest::proptest! {
        #[test]
        fn natural_order_is_total(a in "[a0-2]{0,5}", b in "[a0-2]{0,5}", c in "[a0-2]{0,5}") {
            let order = natural_order(&a, &b);
            assert_eq!(order, natural_order(&b, &a).reverse());
            assert_eq!(order.is_eq(), a == b);
            if order.is_le() && natural_order(&b, &c).is_le() {
                assert!(natural_order(&a, &c).is_le());
            }
        }
    }
}
