//! Reusable parts of a screen that draw numbers and do not depend on cluster types.

pub(crate) mod bar;
pub(crate) mod graph;
pub(crate) mod grid;
pub(crate) mod sparkline;
pub(crate) mod text_table;
