//! The owner in virtual time.
