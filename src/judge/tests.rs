//! Findings in virtual time.
