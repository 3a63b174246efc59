//! Units of the screens, as the user's own file chooses them; what is copied, exported or filtered keeps gaunt's own.

use gaunt_schema::unit::Unit;

use super::display_text;

/// Units of temperature, traffic and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DisplayUnits {
    /// Degrees Fahrenheit instead of Celsius.
    fahrenheit: bool,
    /// Traffic and line rates in bytes per second instead of bits.
    bytes: bool,
    /// Memory in powers of 1000 (GB) instead of 1024 (GiB).
    decimal: bool,
}

/// What the user's file may choose, and how: the first of each is the default.
pub(crate) const UNIT_CHOICES: [(&str, [&str; 2]); 3] = [
    ("temperature", ["celsius", "fahrenheit"]),
    ("traffic", ["bits", "bytes"]),
    ("memory", ["binary", "decimal"]),
];

impl DisplayUnits {
    /// Sets one of [`UNIT_CHOICES`]; returns what is wrong with its name or its value, and what is valid.
    pub(crate) fn choose(&mut self, name: &str, value: &str) -> Result<(), String> {
        let known = UNIT_CHOICES.iter().find(|(known, _)| *known == name);
        let Some((_, values)) = known else {
            let names = UNIT_CHOICES.map(|(name, _)| name).join(", ");
            return Err(format!("is not known; known are {names}"));
        };
        let Some(at) = values.iter().position(|known| *known == value) else {
            return Err(format!("{value:?} is not valid; use {}", values.join(" or ")));
        };
        let chosen = match name {
            "temperature" => &mut self.fahrenheit,
            "traffic" => &mut self.bytes,
            _ => &mut self.decimal,
        };
        *chosen = at == 1;
        Ok(())
    }

    /// Formats a value with its unit.
    pub(crate) fn format_value(self, value: f64, unit: Unit) -> String {
        match unit {
            Unit::BytesPerSecond => self.format_rate(value),
            Unit::Celsius | Unit::Bytes => {
                format!("{} {}", self.format_number(value, unit), self.heading(unit))
            }
            unit => display_text::format_with_unit(value, unit),
        }
    }

    /// Formats network traffic or a line rate, in bytes per second.
    pub(crate) fn format_rate(self, bytes_per_second: f64) -> String {
        if self.bytes {
            display_text::format_scaled(bytes_per_second, "B/s")
        } else {
            display_text::format_bit_rate(bytes_per_second)
        }
    }

    /// Formats a temperature, traffic or memory in the unit of its heading, without the unit.
    pub(crate) fn format_number(self, value: f64, unit: Unit) -> String {
        match unit {
            Unit::Celsius => {
                let degrees = if self.fahrenheit { value * 1.8 + 32.0 } else { value };
                display_text::format_signed_count(degrees)
            }
            Unit::BytesPerSecond => {
                display_text::format_giga(value * if self.bytes { 1.0 } else { 8.0 })
            }
            _ => display_text::format_memory(value, if self.decimal { 1e9 } else { GIBIBYTE }),
        }
    }

    /// Returns the unit of temperatures, traffic or memory in a heading.
    pub(crate) const fn heading(self, unit: Unit) -> &'static str {
        match unit {
            Unit::Celsius if self.fahrenheit => "°F",
            Unit::Celsius => "°C",
            Unit::BytesPerSecond if self.bytes => "GB/s",
            Unit::BytesPerSecond => "Gb/s",
            _ if self.decimal => "GB",
            _ => "GiB",
        }
    }
}

/// Bytes of a gibibyte.
const GIBIBYTE: f64 = (1_u64 << 30) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_changes_its_own_unit() {
        let values = [(41.0, Unit::Celsius), (50e9, Unit::BytesPerSecond), (8e10, Unit::Bytes)];
        let show =
            |units: DisplayUnits| values.map(|(value, unit)| units.format_value(value, unit));
        let mut units = DisplayUnits::default();
        assert_eq!(show(units), ["41 °C", "400 Gb/s", "74.5 GiB"]);
        for (value, unit) in values {
            let own = display_text::format_with_unit(value, unit);
            assert_eq!(units.format_value(value, unit), own, "the default is what is copied");
        }
        units.choose("temperature", "fahrenheit").unwrap();
        assert_eq!(show(units), ["106 °F", "400 Gb/s", "74.5 GiB"]);
        units.choose("traffic", "bytes").unwrap();
        units.choose("memory", "decimal").unwrap();
        assert_eq!(show(units), ["106 °F", "50 GB/s", "80.0 GB"]);
        let numbers = values.map(|(value, unit)| units.format_number(value, unit));
        assert_eq!(numbers, ["106", "50.0", "80.0"]);
        units.choose("traffic", "bits").unwrap();
        assert_eq!(units.format_value(50e9, Unit::BytesPerSecond), "400 Gb/s");
    }

    #[test]
    fn wrong_choices_name_what_is_valid() {
        let mut units = DisplayUnits::default();
        let why = units.choose("traffic", "octets").unwrap_err();
        assert_eq!(why, r#""octets" is not valid; use bits or bytes"#);
        let why = units.choose("power", "kW").unwrap_err();
        assert_eq!(why, "is not known; known are temperature, traffic, memory");
        assert_eq!(units, DisplayUnits::default());
    }
}
