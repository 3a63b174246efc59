//! Natural order of names: `gpu2` before `gpu10`.

use std::cmp::Ordering;

use crate::SanitizedText;

/// Text order, with runs of digits compared by their value.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while !left.is_empty() && !right.is_empty() {
        let ((one, left_rest), (other, right_rest)) = (split_digits(left), split_digits(right));
        let order = if one.is_empty() || other.is_empty() {
            let (mut first, mut second) = (left.chars(), right.chars());
            let order = first.next().cmp(&second.next());
            (left, right) = (first.as_str(), second.as_str());
            order
        } else {
            (left, right) = (left_rest, right_rest);
            let (one, other) = (one.trim_start_matches('0'), other.trim_start_matches('0'));
            one.len().cmp(&other.len()).then_with(|| one.cmp(other))
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
    fn names_are_put_in_order_as_a_person_counts() {
        let mut names = ["gpu10", "gpu2", "gpu02", "gpu", "", "gpu2b", "ä1", "gpu-2"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["", "gpu", "gpu-2", "gpu02", "gpu2", "gpu2b", "gpu10", "ä1"]);
    }

    proptest::proptest! {
        #[test]
        fn it_is_an_order(a in "[a0-2]{0,5}", b in "[a0-2]{0,5}", c in "[a0-2]{0,5}") {
            let order = natural_order(&a, &b);
            assert_eq!(order, natural_order(&b, &a).reverse());
            assert_eq!(order.is_eq(), a == b);
            if order.is_le() && natural_order(&b, &c).is_le() {
                assert!(natural_order(&a, &c).is_le());
            }
        }
    }
}
