//! How much of the budget of queued bytes is used.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum Pressure {
    None,
    /// 90 %.
    High,
    /// 95 %.
    Full,
}

impl Pressure {
    pub(super) fn of(used: usize, budget: usize) -> Self {
        // Whole percents cannot overflow.
        let percent = budget / 100;
        match used {
            used if used >= budget - 5 * percent => Self::Full,
            used if used >= budget - 10 * percent => Self::High,
            _ => Self::None,
        }
    }
}
