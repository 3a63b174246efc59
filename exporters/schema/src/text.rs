//! The text form of a report: the Prometheus exposition format 0.0.4, written and read.
