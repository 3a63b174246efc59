//! Byte sizes as text: `512KiB`, `1GB`, `1.5GiB`, or a number of bytes.

/// The smallest size.
const SMALLEST: u64 = 64 << 10;

/// The largest size: a recording of weeks on a large disk.
const LARGEST: u64 = 16 << 40;

/// The units; a unit precedes the units that are a suffix of its name.
const UNITS: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Error in a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Invalid format.
    #[error("{0:?} is not a size; write it as 512KiB, 16MiB or 1GB")]
    Form(String),
    /// Out of range.
    #[error("{0} is out of range; allowed are 64KiB to 16TiB")]
    Range(String),
}

/// Parses a size; returns bytes.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let format_error = || SizeError::Form(text.to_owned());
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .unwrap_or((text, 1));
    let digits = digits.trim_end();
    let is_decimal = |c: char| c.is_ascii_digit() || c == '.';
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || !digits.chars().all(is_decimal) {
        return Err(format_error());
    }
    let bytes = match digits.parse::<u64>() {
        Ok(number) => number.saturating_mul(unit),
        // A decimal fraction, or an integer that overflows.
        Err(_) => (digits.parse::<f64>().map_err(|_| format_error())? * unit as f64) as u64,
    };
    if (SMALLEST..=LARGEST).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(SizeError::Range(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        for (text, bytes) in [
            ("64KiB", 64 << 10),
            ("16MiB", 16 << 20),
            ("1GiB", 1 << 30),
            ("1.5GiB", 3 << 29),
            ("1GB", 1_000_000_000),
            ("500 MB", 500_000_000),
            ("4294967296", 4 << 30),
            ("100000B", 100_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "1XB", "-1GB", "1e9", "1.2.3MB", "much"] {
            assert_eq!(parse_size(text), Err(SizeError::Form(text.to_owned())), "{text}");
        }
        for text in ["1", "63KiB", "17TiB", "99999999999999999999999GB"] {
            assert_eq!(parse_size(text), Err(SizeError::Range(text.to_owned())), "{text}");
        }
    }
}
