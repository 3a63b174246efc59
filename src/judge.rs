//! The judge: what the numbers mean. Pure: no input or output, no clock.

mod thresholds;

pub use thresholds::Thresholds;
