//! What a run measures.

use serde::{Deserialize, Serialize};

use crate::options::RunOptions;

/// Options that decide what is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) quick: bool,
    pub(crate) sweep: bool,
    pub(crate) only: Vec<String>,
    pub(crate) with: Vec<String>,
    pub(crate) seconds: f64,
    pub(crate) rounds: u32,
    pub(crate) calls: bool,
    /// Of the loopback device, if it is not that of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mtu: Option<u32>,
}

impl Plan {
    pub(super) fn new(options: &RunOptions) -> Self {
        let RunOptions { quick, sweep, only, with, seconds, rounds, no_calls, mtu, .. } = options.clone();
        Self {
            quick,
            sweep,
            only,
            with,
            seconds: seconds.unwrap_or(if quick { 0.4 } else { 1.0 }),
            rounds: rounds.unwrap_or(if quick { 5 } else { 7 }),
            calls: !no_calls,
            mtu,
        }
    }
}
