//! Host lists as Slurm and ClusterShell write them: `gpu[001-064]:9770`, `r[1-2]c[01-02]`, `a,b,c[1-9/2]`.

use std::{fmt, net::Ipv6Addr};

use super::shown_address::shown_address;

/// Maximum number of names of all lists in one start: half as many again as the largest fleet that one aggregator is
/// made for, so that a typo such as `gpu[1-99999999]` is rejected before it fills memory.
pub const MAX_NAMES: usize = 20_000;

/// Maximum number of brackets in one name: more than any rack, chassis, board and port scheme needs.
const MAX_BRACKETS: usize = 8;

/// Maximum number of digits in a range, so that numbers fit into 64 bits.
const MAX_DIGITS: usize = 18;

/// The error message for an unmatched closing bracket.
const NEVER_OPENED: &str = "unmatched closing bracket; remove it";
const NEVER_CLOSED: &str = "unclosed bracket; add \"]\"";

/// An error in a host list, and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host list {:?}, character {at}: {why}", shown_address(list))]
pub struct HostListError {
    /// The list as given.
    pub list: String,
    /// The position of the error, in characters from 1.
    pub at: usize,
    /// The error and how to correct it.
    pub why: String,
}

/// One item of a list, not yet expanded: its start in the list, and its text.
type HostListItem<'a> = (usize, &'a str);

/// Expands `list` to names, in order, at most `max_names`.
pub fn expand_host_list(list: &str, max_names: usize) -> Result<Vec<String>, HostListError> {
    let mut names = Vec::new();
    for item in split_items(list)? {
        names.extend(expand_item(list, item, max_names.saturating_sub(names.len()))?);
    }
    Ok(names)
}

/// Splits a list at commas and blanks outside brackets.
pub(super) fn split_items(list: &str) -> Result<Vec<HostListItem<'_>>, HostListError> {
    let mut items = Vec::new();
    let (mut start, mut open) = (0, None);
    for (position, character) in list.char_indices() {
        match (character, open) {
            ('[', None) => open = Some(position),
            ('[', Some(_)) => {
                return Err(error_at(
                    list,
                    position,
                    "nested bracket; close the first one before it",
                ));
            }
            (']', Some(_)) => open = None,
            (']', None) => {
                return Err(error_at(list, position, NEVER_OPENED));
            }
            (c, None) if c == ',' || c.is_whitespace() => {
                push_item(&mut items, start, &list[start..position]);
                start = position + c.len_utf8();
            }
            _ => {}
        }
    }
    if let Some(position) = open {
        return Err(error_at(list, position, NEVER_CLOSED));
    }
    push_item(&mut items, start, &list[start..]);
    Ok(items)
}

/// Adds an item, unless it is empty: a list may be nothing but commas.
fn push_item<'a>(items: &mut Vec<HostListItem<'a>>, start: usize, text: &'a str) {
    if !text.is_empty() {
        items.push((start, text));
    }
}

/// One part of a name: literal text, or a number range.
enum HostNamePart<'a> {
    Text(&'a str),
    Ranges(Vec<NumberRange>),
}

/// Numbers from `first` to `last`, every `step`, padded with zeros to `width`.
struct NumberRange {
    first: u64,
    last: u64,
    step: u64,
    width: usize,
}

impl NumberRange {
    fn count_numbers(&self) -> u64 {
        (self.last - self.first) / self.step + 1
    }

    fn padded_numbers(&self) -> impl Iterator<Item = String> + '_ {
        let number = |i| format!("{:0width$}", self.first + i * self.step, width = self.width);
        (0..self.count_numbers()).map(number)
    }
}

/// Expands one item: the product of its brackets, the last one varying fastest.
pub(super) fn expand_item(
    list: &str,
    (start, text): HostListItem<'_>,
    max_names: usize,
) -> Result<Vec<String>, HostListError> {
    let parts = parse_name_parts(list, start, text)?;
    let mut total: u64 = 1;
    for part in &parts {
        if let HostNamePart::Ranges(ranges) = part {
            let count = ranges.iter().map(NumberRange::count_numbers).fold(0, u64::saturating_add);
            total = total.saturating_mul(count);
        }
    }
    if total > max_names as u64 {
        let why = format!(
            "{text} expands to {total} names, but only {max_names} more are allowed ({MAX_NAMES} \
             in total); check the range"
        );
        return Err(error_at(list, start, &why));
    }
    let mut names = vec![String::new()];
    for part in &parts {
        match part {
            HostNamePart::Text(text) => names.iter_mut().for_each(|name| name.push_str(text)),
            HostNamePart::Ranges(ranges) => {
                let numbers: Vec<_> = ranges.iter().flat_map(NumberRange::padded_numbers).collect();
                let with_numbers = |name: &String| -> Vec<_> {
                    numbers.iter().map(|number| format!("{name}{number}")).collect()
                };
                names = names.iter().flat_map(with_numbers).collect();
            }
        }
    }
    Ok(names)
}

fn parse_name_parts<'a>(
    list: &str,
    start: usize,
    text: &'a str,
) -> Result<Vec<HostNamePart<'a>>, HostListError> {
    let (mut parts, mut rest, mut position) = (Vec::new(), text, start);
    while let Some(open) = rest.find('[') {
        // Brackets are matched in the whole list, and not in the halves of an item that is split inside one.
        check_opened(list, position, &rest[..open])?;
        let Some(close) = rest[open..].find(']').map(|length| open + length) else {
            return Err(error_at(list, position + open, NEVER_CLOSED));
        };
        let inside = &rest[open + 1..close];
        parts.push(HostNamePart::Text(&rest[..open]));
        // An IPv6 address has brackets of its own.
        if inside.contains(':') {
            if inside.parse::<Ipv6Addr>().is_err() {
                let why = format!(
                    "{inside:?} is neither a range nor an IPv6 address; write 1-8 or [ADDRESS]:PORT"
                );
                return Err(error_at(list, position + open + 1, why));
            }
            parts.push(HostNamePart::Text(&rest[open..=close]));
        } else {
            parts.push(HostNamePart::Ranges(parse_ranges(list, position + open + 1, inside)?));
        }
        position += close + 1;
        rest = &rest[close + 1..];
        if parts.len() > 2 * MAX_BRACKETS {
            let why = format!("more than {MAX_BRACKETS} brackets in one name; split it");
            return Err(error_at(list, start, &why));
        }
    }
    check_opened(list, position, rest)?;
    parts.push(HostNamePart::Text(rest));
    Ok(parts)
}

/// Rejects text with an unmatched closing bracket.
fn check_opened(list: &str, start: usize, text: &str) -> Result<(), HostListError> {
    text.find(']').map_or(Ok(()), |close| Err(error_at(list, start + close, NEVER_OPENED)))
}

fn parse_ranges(list: &str, start: usize, inside: &str) -> Result<Vec<NumberRange>, HostListError> {
    let (mut position, mut ranges) = (start, Vec::new());
    for text in inside.split(',') {
        ranges.push(parse_range(text.trim()).map_err(|why| error_at(list, position, &why))?);
        position += text.len() + 1;
    }
    Ok(ranges)
}

/// One range: `7`, `001-064`, `0-30/2`.
fn parse_range(text: &str) -> Result<NumberRange, String> {
    let (span, step) = text.split_once('/').unwrap_or((text, "1"));
    let (first, last) = span.split_once('-').unwrap_or((span, span));
    let number = |digits: &str| -> Result<u64, String> {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || digits.len() > MAX_DIGITS {
            return Err(format!(
                "{text:?} is not a range; write numbers as 1-8, 001-064, 1,3,7 or 0-30/2"
            ));
        }
        digits.parse().map_err(|_| format!("{digits} is too large"))
    };
    let range = NumberRange {
        first: number(first)?,
        last: number(last)?,
        step: number(step)?,
        width: padding_width(first),
    };
    if range.step == 0 {
        return Err(format!("{text:?} has a step of 0; the smallest is 1"));
    }
    if range.last < range.first {
        return Err(format!("{text:?} is reversed; write {last}-{first}"));
    }
    if last.len() > 1 && last.starts_with('0') && last.len() != first.len() {
        return Err(format!(
            "{text:?} has differently padded ends; write {first:0>width$}-{last}",
            width = last.len()
        ));
    }
    Ok(range)
}

/// The width to which a range is padded: that of its first number, if it is padded.
fn padding_width(first: &str) -> usize {
    if first.len() > 1 && first.starts_with('0') { first.len() } else { 0 }
}

/// An error at a byte of the list; its position is reported in characters.
pub(super) fn error_at(list: &str, byte: usize, why: impl fmt::Display) -> HostListError {
    let position = list.get(..byte).map_or(0, |before| before.chars().count()) + 1;
    HostListError { list: shorten_list(list), at: position, why: why.to_string() }
}

/// A list as error messages show it.
fn shorten_list(list: &str) -> String {
    const SHOWN: usize = 80;
    let mut shortened: String = list.chars().take(SHOWN).collect();
    if shortened.len() < list.len() {
        shortened.push('…');
    }
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_lists_expand_to_their_names() {
        let table: &[(&str, &[&str])] = &[
            ("gpu1", &["gpu1"]),
            ("a, b\tc", &["a", "b", "c"]),
            ("", &[]),
            (",,", &[]),
            ("gpu[1-3]", &["gpu1", "gpu2", "gpu3"]),
            ("gpu[008-011]:9770", &["gpu008:9770", "gpu009:9770", "gpu010:9770", "gpu011:9770"]),
            ("gpu[8-11]", &["gpu8", "gpu9", "gpu10", "gpu11"]),
            ("gpu[098-101]", &["gpu098", "gpu099", "gpu100", "gpu101"]),
            ("gpu[1,3,7-8]", &["gpu1", "gpu3", "gpu7", "gpu8"]),
            ("gpu[01, 03]", &["gpu01", "gpu03"]),
            ("r[1-2]c[01-02]", &["r1c01", "r1c02", "r2c01", "r2c02"]),
            ("n[0-6/3]x", &["n0x", "n3x", "n6x"]),
            ("n[0-7/3]", &["n0", "n3", "n6"]),
            ("n[0]", &["n0"]),
            ("h:[9001-9002]", &["h:9001", "h:9002"]),
            ("[::1]:9770,b", &["[::1]:9770", "b"]),
            ("[1-2]", &["1", "2"]),
        ];
        for (list, expected) in table {
            assert_eq!(expand_host_list(list, MAX_NAMES).unwrap(), *expected, "{list}");
        }
    }

    #[test]
    fn error_gives_its_position_and_correction() {
        let table = [
            ("gpu[001-064", 4, "unclosed bracket; add \"]\""),
            ("a,gpu001-064]", 13, "unmatched closing bracket; remove it"),
            ("a[1[2]]", 4, "nested bracket; close the first one before it"),
            ("a[9-1]", 3, "\"9-1\" is reversed; write 1-9"),
            ("a[1-064]", 3, "\"1-064\" has differently padded ends; write 001-064"),
            ("a[0-9/0]", 3, "\"0-9/0\" has a step of 0; the smallest is 1"),
            ("ä,b[1,x]", 7, "\"x\" is not a range; write numbers as 1-8, 001-064, 1,3,7 or 0-30/2"),
            ("b[]", 3, "\"\" is not a range; write numbers as 1-8, 001-064, 1,3,7 or 0-30/2"),
            // A comma in what looks like an address once produced a name with a comma in it.
            (
                "a:910[,:01]:9",
                7,
                "\",:01\" is neither a range nor an IPv6 address; write 1-8 or [ADDRESS]:PORT",
            ),
            ("b[-5]", 3, "\"-5\" is not a range; write numbers as 1-8, 001-064, 1,3,7 or 0-30/2"),
        ];
        for (list, at, why) in table {
            let error = expand_host_list(list, MAX_NAMES).unwrap_err();
            assert_eq!((error.at, error.why.as_str()), (at, why), "{list}");
        }
    }

    #[test]
    fn expansion_is_bounded_in_advance() {
        let error = expand_host_list("a[1-99999999999]", MAX_NAMES).unwrap_err();
        assert!(error.to_string().contains("99999999999 names"), "{error}");
        assert!(
            expand_host_list("a[1-999999]b[1-999999]c[1-999999]d[1-999999]", MAX_NAMES).is_err()
        );
        assert!(expand_host_list("a[1-15000],b[1-15000]", MAX_NAMES).is_err());
        assert_eq!(expand_host_list("a[1-20000]", MAX_NAMES).unwrap().len(), 20_000);
        assert!(expand_host_list(&"[1]".repeat(9), MAX_NAMES).is_err());
        assert!(expand_host_list("a[99999999999999999999]", MAX_NAMES).is_err());
    }
}
