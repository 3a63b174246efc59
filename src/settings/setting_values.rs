//! Values of settings that are checked when they are read: durations, prices, sizes and addresses.

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};

use super::LISTEN;
use crate::cli::{parse_size, parse_span};

/// A duration.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanSetting(Duration);

impl SpanSetting {
    pub(super) const fn from_seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub(super) fn to_duration(self) -> Duration {
        self.0
    }
}

impl<'de> Deserialize<'de> for SpanSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_span(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A valid price.
#[derive(Clone, Copy, Debug)]
pub(super) struct PriceSetting(f64);

impl PriceSetting {
    pub(super) fn to_amount(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for PriceSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let price = f64::deserialize(deserializer)?;
        if price.is_finite() && price > 0.0 {
            return Ok(Self(price));
        }
        Err(D::Error::custom(format!(
            "{price} is not a price; give a number above 0, or leave it out"
        )))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeSetting(u64);

impl SizeSetting {
    pub(super) const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    pub(super) fn to_bytes(self) -> usize {
        self.0 as usize
    }
}

impl<'de> Deserialize<'de> for SizeSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_size(&text).map(Self).map_err(D::Error::custom)
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenSetting(SocketAddr);

impl ListenSetting {
    pub(super) fn to_socket_address(self) -> SocketAddr {
        self.0
    }
}

impl Default for ListenSetting {
    fn default() -> Self {
        Self(LISTEN.parse().expect("the default address is valid"))
    }
}

impl<'de> Deserialize<'de> for ListenSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            D::Error::custom(format!(
                "{text:?} is not an address to listen on; write ADDRESS:PORT, such as {LISTEN}"
            ))
        })
    }
}
