//! What is compared between servers.

use crate::run::{Cell, Record, Unit};
use measuring::statistics::{Estimate, quantile_of_counts};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Cost,
    Rate,
    P99,
    P999,
    Memory,
    /// Memory of an idle connection.
    Idle,
}

impl Metric {
    pub(crate) const COUNT: usize = 6;
    pub(crate) const ALL: [Self; Self::COUNT] =
        [Self::Cost, Self::Rate, Self::P99, Self::P999, Self::Memory, Self::Idle];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cost => "CPU time",
            Self::Rate => "throughput",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Memory => "memory",
            Self::Idle => "memory for each idle connection",
        }
    }

    pub(crate) fn unit(self, unit: Unit) -> String {
        match self {
            Self::Cost => format!("µs for each {}", unit.one()),
            Self::Rate => format!("{} a second", unit.many()),
            Self::P99 | Self::P999 => "ms".to_owned(),
            Self::Memory => "MiB".to_owned(),
            Self::Idle => "KiB".to_owned(),
        }
    }

    /// Returns the title of its table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Cost => "CPU time for each request or delivery, µs",
            Self::Rate => "Requests or deliveries a second",
            Self::P99 => "p99, ms",
            Self::P999 => "p99.9, ms",
            Self::Memory => "Memory at the end of a round (Pss), MiB",
            Self::Idle => "Memory for each idle connection (Pss above that before the first connection), KiB",
        }
    }

    /// Returns what throughput is. Events come at the rate of their source, so that only CPU time limits them.
    pub(crate) fn throughput(unit: Unit) -> Self {
        match unit {
            Unit::Request => Self::Rate,
            Unit::Delivery => Self::Cost,
        }
    }

    pub(crate) fn throughput_unit(unit: Unit) -> String {
        match unit {
            Unit::Request => format!("{} a second", unit.many()),
            Unit::Delivery => format!("{} for each second of CPU time", unit.many()),
        }
    }

    /// Returns how many times better millstream is, by the ratio of another server's values to its own.
    pub(crate) fn advantage(self, ratio: Estimate) -> Estimate {
        if self == Self::Rate { ratio.inverse() } else { ratio }
    }

    /// Returns the value of a round: not a number if the round does not have it.
    pub(super) fn of(self, cell: &Cell, record: &Record) -> f64 {
        match self {
            Self::Cost => record.cost(),
            // Most of the time of such a round is a pause.
            Self::Rate if cell.rests() => f64::NAN,
            Self::Rate => record.rate(),
            Self::P99 => quantile(record, 0.99),
            Self::P999 => quantile(record, 0.999),
            Self::Memory => record.pss_kib.map_or(f64::NAN, |kib| kib as f64 / 1024.0),
            Self::Idle => match (record.first_pss_kib, record.pss_kib) {
                (Some(first), Some(last)) => (last as f64 - first as f64) / f64::from(cell.connections),
                _ => f64::NAN,
            },
        }
    }
}

/// Returns a quantile of a round in milliseconds: not a number if the round has too few responses to show it.
fn quantile(record: &Record, share: f64) -> f64 {
    quantile_of_counts(&record.latency, share).map_or(f64::NAN, |nanos| nanos as f64 / 1e6)
}
