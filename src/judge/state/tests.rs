//! The table of states, row by row.
