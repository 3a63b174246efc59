//! Pieces of a screen that know numbers, not clusters.

pub(crate) mod bar;
pub(crate) mod graph;
pub(crate) mod grid;
pub(crate) mod sparkline;
pub(crate) mod text_table;
