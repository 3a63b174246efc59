//! Device exclusions: name patterns of devices that are not read, with `*` for any text.

/// Patterns of names.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceExclusions(Vec<String>);

impl DeviceExclusions {
    pub(crate) fn new(patterns: &[String]) -> Self {
        Self(patterns.to_vec())
    }

    /// Whether a device of this name is excluded.
    pub(crate) fn is_excluded(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| matches_pattern(pattern, name))
    }
}

/// Whether `name` matches `pattern`, in which each `*` matches any text. Each piece matches at its first occurrence,
/// which is correct for patterns without other wildcards.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut pieces: Vec<_> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some((_, after)) = left.split_once(piece) else { return false };
        left = after;
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything_and_nothing_else_does() {
        for (pattern, name, expected) in [
            ("mlx5_1", "mlx5_1", true),
            ("mlx5_1", "mlx5_12", false),
            ("mlx5_*", "mlx5_12", true),
            ("*", "", true),
            ("veth*", "eth0", false),
            ("*s0f*v*", "ens0f1v2", true),
            ("*s0f*v*", "ens0f1", false),
            ("a*b", "ab", true),
            ("a*ba", "aba", true),
            ("ab*ba", "aba", false),
            ("", "eth0", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} and {name}");
        }
    }
}
