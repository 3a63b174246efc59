//! Bench `judge`: how often the judge is right, how fast, and what it costs, on labelled simulated runs.

mod score;
