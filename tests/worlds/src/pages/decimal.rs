//! Numbers as exporters print them: decimal fractions of a fixed resolution.

/// From this many units on, a number has more digits than an f64 holds, and is printed as its nearest f64.
const EXACT_UNITS: u64 = 1_000_000_000_000_000;

/// A whole number of units of 10^-decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    units: i64,
    decimals: u8,
}

impl Decimal {
    /// A whole number.
    pub(super) const fn whole(units: i64) -> Self {
        Self { units, decimals: 0 }
    }

    /// A counter without a fraction: rounded down, so that it never falls.
    pub(super) fn count(value: f64) -> Self {
        Self::whole(value.floor() as i64)
    }

    /// The nearest whole number.
    pub(super) fn nearest(value: f64) -> Self {
        Self::whole(value.round() as i64)
    }

    /// A flag.
    pub(super) fn flag(is_true: bool) -> Self {
        Self::whole(i64::from(is_true))
    }

    /// The nearest number with so many decimals.
    pub(super) fn rounded(value: f64, decimals: u8) -> Self {
        Self { units: (value * power_of_ten(decimals)).round() as i64, decimals }
    }

    /// The next number below with so many decimals, so that a counter never falls.
    pub(super) fn floored(value: f64, decimals: u8) -> Self {
        Self { units: (value * power_of_ten(decimals)).floor() as i64, decimals }
    }

    /// A counter of so many bits that stops at its maximum.
    pub(super) fn saturated(value: f64, bits: u32) -> Self {
        Self::whole((value.max(0.0) as i64).min((1_i64 << bits) - 1))
    }

    /// A counter of 32 bits that wraps.
    pub(super) fn wrapped32(value: f64) -> Self {
        Self::whole(i64::from(value.max(0.0) as u64 as u32))
    }

    /// This number times a whole factor.
    #[must_use]
    pub(super) fn times(self, factor: i64) -> Self {
        Self { units: self.units.saturating_mul(factor), ..self }
    }

    /// The same units, of another size.
    #[must_use]
    pub(super) fn with_decimals(self, decimals: u8) -> Self {
        Self { decimals, ..self }
    }

    /// The same number with more decimals.
    #[must_use]
    pub(super) fn extended(self, decimals: u8) -> Self {
        let added = decimals.saturating_sub(self.decimals);
        self.times(10_i64.pow(u32::from(added))).with_decimals(self.decimals + added)
    }

    /// The number.
    pub(super) fn value(self) -> f64 {
        self.units as f64 / power_of_ten(self.decimals)
    }

    /// Appends the number with all its decimals: `%d` or `%f` of C.
    pub(super) fn write_fixed(self, out: &mut String) {
        if self.units < 0 {
            out.push('-');
        }
        let mut buffer = DigitBuffer::default();
        let digits = buffer.fill(self.units.unsigned_abs(), usize::from(self.decimals) + 1);
        let (integer, fraction) = digits.split_at(digits.len() - usize::from(self.decimals));
        out.push_str(integer);
        if !fraction.is_empty() {
            out.push('.');
            out.push_str(fraction);
        }
    }

    /// Appends the number as Go's `strconv.FormatFloat(value, 'g', -1, 64)` does: with an exponent from a million on.
    pub(super) fn write_shortest(self, out: &mut String) {
        let magnitude = self.units.unsigned_abs();
        if magnitude == 0 {
            out.push('0');
            return;
        }
        if magnitude >= EXACT_UNITS {
            write_shortest_float(self.value(), out);
            return;
        }
        if self.units < 0 {
            out.push('-');
        }
        let mut buffer = DigitBuffer::default();
        let digits = buffer.fill(magnitude, 1);
        let exponent = digits.len() as i32 - 1 - i32::from(self.decimals);
        write_digits(digits.trim_end_matches('0'), exponent, out);
    }
}

/// Appends a float as Go's `strconv.FormatFloat(value, 'g', -1, 64)` does.
pub(super) fn write_shortest_float(value: f64, out: &mut String) {
    let text = format!("{value:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else {
        out.push_str(&text);
        return;
    };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    out.push_str(sign);
    let digits = mantissa.replace('.', "");
    write_digits(&digits, exponent.parse().unwrap_or(0), out);
}

/// Appends significant digits, the first of which counts 10^exponent.
fn write_digits(digits: &str, exponent: i32, out: &mut String) {
    const ZEROS: &str = "000000";
    let length = digits.len() as i32;
    if !(-4..6).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        out.push_str(if exponent < 0 { "e-" } else { "e+" });
        let size = exponent.unsigned_abs();
        if size < 10 {
            out.push('0');
        }
        out.push_str(DigitBuffer::default().fill(u64::from(size), 1));
    } else if exponent < 0 {
        out.push_str("0.");
        out.push_str(&ZEROS[..exponent.unsigned_abs() as usize - 1]);
        out.push_str(digits);
    } else if length <= exponent + 1 {
        out.push_str(digits);
        out.push_str(&ZEROS[..(exponent + 1 - length) as usize]);
    } else {
        let (integer, fraction) = digits.split_at(exponent as usize + 1);
        out.push_str(integer);
        out.push('.');
        out.push_str(fraction);
    }
}

fn power_of_ten(decimals: u8) -> f64 {
    10_f64.powi(i32::from(decimals))
}

/// Room for the digits of a 64-bit number.
#[derive(Default)]
struct DigitBuffer([u8; 24]);

impl DigitBuffer {
    /// The decimal digits of the number, with leading zeros up to a length.
    fn fill(&mut self, mut number: u64, least: usize) -> &str {
        let mut start = self.0.len();
        while number > 0 || self.0.len() - start < least {
            start -= 1;
            self.0[start] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        std::str::from_utf8(&self.0[start..]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortest(number: Decimal) -> String {
        let mut out = String::new();
        number.write_shortest(&mut out);
        out
    }

    fn fixed(number: Decimal) -> String {
        let mut out = String::new();
        number.write_fixed(&mut out);
        out
    }

    #[test]
    fn shortest_form_is_that_of_go() {
        for (number, text) in [
            (Decimal::whole(0), "0"),
            (Decimal::whole(801_432), "801432"),
            (Decimal::whole(100_000), "100000"),
            (Decimal::whole(1_445_697), "1.445697e+06"),
            (Decimal::whole(50_000_000_000), "5e+10"),
            (Decimal::whole(-125_000), "-125000"),
            (Decimal::whole(4_294_967_295), "4.294967295e+09"),
            (Decimal::floored(36.78, 2), "36.78"),
            (Decimal::rounded(0.000_569_267, 9), "0.000569267"),
            (Decimal::rounded(0.000_010_027, 9), "1.0027e-05"),
            (Decimal::rounded(0.5, 6), "0.5"),
            (Decimal::whole(9_223_372_036_854_775_807), "9.223372036854776e+18"),
        ] {
            assert_eq!(shortest(number), text);
        }
        let mut out = String::new();
        write_shortest_float(1_795_227_250.904_193_9, &mut out);
        assert_eq!(out, "1.7952272509041939e+09");
    }

    #[test]
    fn fixed_form_has_all_decimals() {
        assert_eq!(fixed(Decimal::rounded(0.0, 6)), "0.000000");
        assert_eq!(fixed(Decimal::rounded(526.167, 6)), "526.167000");
        assert_eq!(fixed(Decimal::whole(-3)), "-3");
        assert_eq!(fixed(Decimal::whole(98).extended(4).with_decimals(6)), "0.980000");
    }

    #[test]
    fn narrow_counters_stop_or_wrap() {
        assert_eq!(Decimal::saturated(70_000.0, 16), Decimal::whole(65_535));
        assert_eq!(Decimal::saturated(12.9, 8), Decimal::whole(12));
        assert_eq!(Decimal::wrapped32(4_294_967_297.5), Decimal::whole(1));
    }
}
