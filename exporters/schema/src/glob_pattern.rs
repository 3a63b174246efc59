//! Glob patterns: `*`, `?` and `[a-z]`, in time bounded by the product of both lengths.

/// A pattern of a whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobPattern {
    parts: Vec<GlobPart>,
    ignore_case: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum GlobPart {
    One(char),
    Any,
    /// Any number of characters.
    Many,
    /// One of these characters, or none of them if negated.
    Among {
        ranges: Vec<(char, char)>,
        negated: bool,
    },
}

/// A bracket is not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnclosedBracket;

impl GlobPattern {
    /// The pattern of a name: `*` and `?` are wildcards, brackets are not.
    pub fn new(text: &str) -> Self {
        let parts = text.chars().map(|character| match character {
            '*' => GlobPart::Many,
            '?' => GlobPart::Any,
            other => GlobPart::One(other),
        });
        Self { parts: parts.collect(), ignore_case: false }
    }

    /// Parses the pattern of a search: it has brackets and ignores the case, and text without wildcards matches
    /// anywhere.
    pub fn parse_search(text: &str) -> Result<Self, UnclosedBracket> {
        let mut parts = Vec::new();
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            parts.push(match character {
                '*' if parts.last() == Some(&GlobPart::Many) => continue,
                '*' => GlobPart::Many,
                '?' => GlobPart::Any,
                '[' => parse_bracket(&mut rest)?,
                other => GlobPart::One(other.to_ascii_lowercase()),
            });
        }
        if parts.iter().all(|part| matches!(part, GlobPart::One(_))) {
            parts.insert(0, GlobPart::Many);
            parts.push(GlobPart::Many);
        }
        Ok(Self { parts, ignore_case: true })
    }

    /// Whether the whole text matches. Backtracking to the last star only bounds the time by the product of both
    /// lengths.
    pub fn matches_text(&self, text: &str) -> bool {
        let (mut part, mut rest) = (0, text);
        let mut star: Option<(usize, &str)> = None;
        loop {
            let Some(character) = rest.chars().next() else {
                return self.parts[part..].iter().all(|part| *part == GlobPart::Many);
            };
            let after = &rest[character.len_utf8()..];
            let character =
                if self.ignore_case { character.to_ascii_lowercase() } else { character };
            match self.parts.get(part) {
                Some(GlobPart::Many) => {
                    star = Some((part, rest));
                    part += 1;
                }
                Some(glob_part) if glob_part.matches_char(character) => {
                    part += 1;
                    rest = after;
                }
                _ => {
                    let Some((star_part, from)) = star else { return false };
                    let Some(skipped) = from.chars().next() else { return false };
                    let from = &from[skipped.len_utf8()..];
                    star = Some((star_part, from));
                    (part, rest) = (star_part + 1, from);
                }
            }
        }
    }
}

impl GlobPart {
    fn matches_char(&self, character: char) -> bool {
        match self {
            Self::One(expected) => *expected == character,
            Self::Any => true,
            Self::Many => false,
            Self::Among { ranges, negated } => {
                let inside = ranges.iter().any(|(from, to)| (*from..=*to).contains(&character));
                inside != *negated
            }
        }
    }
}

/// Parses the content of brackets after the opening one.
fn parse_bracket(rest: &mut std::str::Chars<'_>) -> Result<GlobPart, UnclosedBracket> {
    let negated = rest.as_str().starts_with('!');
    if negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        let from = rest.next().ok_or(UnclosedBracket)?;
        if from == ']' && !ranges.is_empty() {
            return Ok(GlobPart::Among { ranges, negated });
        }
        let from = from.to_ascii_lowercase();
        let mut ahead = rest.clone();
        match (ahead.next(), ahead.next()) {
            (Some('-'), Some(to)) if to != ']' => {
                *rest = ahead;
                ranges.push((from, to.to_ascii_lowercase()));
            }
            _ => ranges.push((from, from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_as_in_a_shell_and_plain_text_anywhere() {
        for (pattern, text, matches) in [
            ("h100", "NVIDIA H100 80GB", true),
            ("h200", "NVIDIA H100 80GB", false),
            ("gpu-0*", "gpu-0417", true),
            ("gpu-0*", "xgpu-0417", false),
            ("gpu-0?17", "gpu-0417", true),
            ("gpu-0[!1-3]*", "gpu-0417", true),
            ("gpu-0[!1-4]*", "gpu-0417", false),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
            ("[]]x", "]x", true),
        ] {
            assert_eq!(
                GlobPattern::parse_search(pattern).unwrap().matches_text(text),
                matches,
                "{pattern} {text}"
            );
        }
        assert_eq!(GlobPattern::parse_search("gpu[1-"), Err(UnclosedBracket));
        assert_eq!(GlobPattern::parse_search("["), Err(UnclosedBracket));
    }

    #[test]
    fn glob_of_a_name_matches_whole_name_and_case() {
        for (pattern, name, matches) in [
            ("*.json", "a.json", true),
            ("*.json", "a.json.tmp", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("rack?.yml", "rack1.yml", true),
            ("rack?.yml", "rack10.yml", false),
            ("**", "", true),
            ("x", "", false),
            ("mlx5_1", "mlx5_12", false),
            ("*s0f*v*", "ens0f1v2", true),
            ("*s0f*v*", "ens0f1", false),
            ("a*b", "ab", true),
            ("a*ba", "aba", true),
            ("ab*ba", "aba", false),
            ("", "eth0", false),
            ("*h100*", "NVIDIA H100", false),
            ("[ab]", "[ab]", true),
            ("[ab]", "a", false),
        ] {
            assert_eq!(GlobPattern::new(pattern).matches_text(name), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn hostile_pattern_takes_time_of_both_lengths() {
        let pattern = GlobPattern::new(&"*a".repeat(500));
        assert!(!pattern.matches_text(&"a".repeat(256).replace("aa", "ab")));
    }

    /// Matches by exhaustive search, for short texts.
    fn matches_slowly(pattern: &[char], text: &[char]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some('*'), _) => {
                matches_slowly(&pattern[1..], text)
                    || (!text.is_empty() && matches_slowly(pattern, &text[1..]))
            }
            (Some(expected), Some(character)) => {
                (*expected == '?' || expected == character)
                    && matches_slowly(&pattern[1..], &text[1..])
            }
            _ => false,
        }
    }

    proptest::proptest! {
        #[test]
        fn pattern_matches_like_exhaustive_search(pattern in "[ab?]{0,3}\\*[ab*?]{0,5}", text in "[ab]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let slow = matches_slowly(&chars(&pattern), &chars(&text));
            assert_eq!(GlobPattern::new(&pattern).matches_text(&text), slow);
        }
    }
}
