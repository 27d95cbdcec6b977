//! Frontiers of throughput and p99: which points of another server no point of millstream dominates.
//!
//! A point is one cell of a workload, which is one number of connections. A point dominates another if it is level in
//! throughput and p99, by the medians, and better beyond the noise in one of them. The noise is the spread over rounds:
//! within a cell that of ratios of single rounds, between two cells that of both sides. Events have their number of
//! readers and their rate given, so their points are compared within a cell only.

use super::metric::Metric;
use super::summary::{OURS, Row, Summary};
use super::svg::number;
use crate::run::{Cell, Unit};
use measuring::statistics::{ENOUGH, Estimate, SMALLEST, Verdict};

/// Families whose cells are one workload by more and more connections, and the names of the workloads.
const WORKLOADS: [(&str, &str); 3] = [("connections", "files"), ("tokens", "tokens"), ("events", "events")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State<'a> {
    /// By millstream's point of this cell.
    Dominated(&'a str),
    Undominated,
    /// There are too few rounds, or too few responses for a p99.
    Open,
}

/// A point of another server.
#[derive(Debug)]
pub(crate) struct Point<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) throughput: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) state: State<'a>,
    /// How many times better millstream is in the same cell, in throughput and in p99.
    pub(crate) beside: [Option<Estimate>; 2],
}

/// All points of another server in a workload.
#[derive(Debug)]
pub(crate) struct Frontier<'a> {
    pub(crate) workload: &'static str,
    pub(crate) rival: &'a str,
    pub(crate) points: Vec<Point<'a>>,
}

/// Returns the frontiers of all other servers.
pub(crate) fn frontiers<'a>(summaries: &'a [Summary<'a>]) -> Vec<Frontier<'a>> {
    let mut all = Vec::new();
    for (family, workload) in WORKLOADS {
        let cells: Vec<&Summary<'a>> = summaries.iter().filter(|summary| summary.cell.family() == family).collect();
        let mut rivals: Vec<&str> = Vec::new();
        for row in cells.iter().flat_map(|summary| &summary.rows).filter(|row| row.name != OURS) {
            if !rivals.contains(&row.name) {
                rivals.push(row.name);
            }
        }
        for rival in rivals {
            let points = cells.iter().filter_map(|summary| Some(point(&cells, summary, summary.row(rival)?)));
            all.push(Frontier { workload, rival, points: points.collect() });
        }
    }
    all
}

fn point<'a>(cells: &[&'a Summary<'a>], at: &'a Summary<'a>, their: &Row<'_>) -> Point<'a> {
    let unit = at.cell.unit();
    let metrics = [Metric::throughput(unit), Metric::P99];
    let beside = metrics.map(|metric| their.advantage(metric));
    let other = |summary: &&&Summary<'_>| {
        // The number of connections is a choice. The number of readers of an event is a given, and so is its rate.
        summary.cell.name != at.cell.name
            && unit == Unit::Request
            && summary.row(OURS).is_some_and(|our| {
                let ratio = |metric: Metric| Some(metric.advantage(their.get(metric)?.over(&our.get(metric)?)));
                dominates(metrics.map(ratio))
            })
    };
    let has_all = |row: &Row<'_>| metrics.iter().all(|m| row.get(*m).is_some_and(|value| value.count >= ENOUGH));
    // A cell in which millstream has failed dominates nothing.
    let complete = has_all(their) && at.row(OURS).is_none_or(has_all);
    let state = match cells.iter().find(other) {
        _ if dominates(beside) => State::Dominated(&at.cell.name),
        Some(by) => State::Dominated(&by.cell.name),
        None if complete => State::Undominated,
        None => State::Open,
    };
    let p99 = their.get(Metric::P99).map(|p99| p99.median);
    Point { cell: at.cell, throughput: their.throughput(unit), p99, state, beside }
}

/// Returns whether advantages in throughput and p99 are those of a point that dominates.
fn dominates(advantages: [Option<Estimate>; 2]) -> bool {
    let [Some(throughput), Some(p99)] = advantages else { return false };
    let verdicts = [throughput, p99].map(|advantage| advantage.verdict());
    let enough = throughput.count.min(p99.count) >= ENOUGH;
    // An interval can be wide enough to leave any ratio open. The median has to be level at least.
    let level = throughput.median.min(p99.median) * SMALLEST >= 1.0;
    enough && level && verdicts.contains(&Verdict::Above)
}

impl Frontier<'_> {
    fn count(&self, is: impl Fn(State<'_>) -> bool) -> usize {
        self.points.iter().filter(|point| is(point.state)).count()
    }

    /// Says how many points are dominated.
    pub(crate) fn sentence(&self) -> String {
        let Self { workload, rival, points } = self;
        let dominated = self.count(|state| matches!(state, State::Dominated(_)));
        let (free, open) = (self.count(|state| state == State::Undominated), self.count(|state| state == State::Open));
        let mut text = format!("{workload}: {dominated} of {} points of {rival} are dominated", points.len());
        for (count, what) in [(free, "not dominated"), (open, "not decided")] {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    }

    /// Returns a line for each point that is not dominated, or not decided.
    pub(crate) fn lines(&self) -> Vec<String> {
        let value = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        let ratio = |ratio: Option<Estimate>| match ratio {
            Some(Estimate { median, low, high, .. }) => {
                format!("{}× ({}–{})", number(median), number(low), number(high))
            }
            None => "-".to_owned(),
        };
        let line = |point: &Point<'_>| {
            let state = match point.state {
                State::Dominated(_) => return None,
                State::Undominated => "not dominated",
                State::Open => "not decided: too few rounds, or responses",
            };
            let Point { cell, throughput, p99, beside, .. } = point;
            Some(format!(
                "{} {}: {state}; {} {}, p99 {} ms; advantage of millstream there: throughput {}, p99 {}",
                cell.name,
                self.rival,
                value(*throughput),
                Metric::throughput_unit(cell.unit()),
                value(*p99),
                ratio(beside[0]),
                ratio(beside[1])
            ))
        };
        self.points.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_dominates_if_it_is_nowhere_worse_and_somewhere_better() {
        let ratio = |median: f64, noise: f64, count: usize| {
            Some(Estimate { median, low: median - noise, high: median + noise, coverage: 0.95, count })
        };
        for (throughput, p99, expected) in [
            (ratio(1.5, 0.1, 7), ratio(2.0, 0.1, 7), true),
            (ratio(1.5, 0.1, 7), ratio(1.0, 0.1, 7), true),
            (ratio(0.99, 0.1, 7), ratio(2.0, 0.1, 7), true),
            // Not worse beyond the noise, and not level either.
            (ratio(0.95, 0.1, 7), ratio(2.0, 0.1, 7), false),
            // Better in nothing beyond the noise.
            (ratio(1.2, 0.3, 7), ratio(1.2, 0.3, 7), false),
            (ratio(1.01, 0.001, 7), ratio(1.01, 0.001, 7), false),
            // Worse in one.
            (ratio(1.5, 0.1, 7), ratio(0.8, 0.1, 7), false),
            (ratio(0.8, 0.1, 7), ratio(9.0, 0.1, 7), false),
            // Not known in one.
            (ratio(1.5, 0.1, 7), ratio(2.0, 0.1, 4), false),
            (ratio(1.5, 0.1, 7), None, false),
        ] {
            assert_eq!(dominates([throughput, p99]), expected, "{throughput:?} {p99:?}");
        }
    }
}
