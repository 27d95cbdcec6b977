//! Refuses to publish a cell that contradicts those of the next sizes.

use std::mem::discriminant;

use super::metric::Metric;
use super::summary::Summary;
use super::svg::number;
use crate::run::{Cell, Work, size};

/// Maximum ratio of what a byte costs to what it costs at both next sizes.
const TOLERANCE: f64 = 1.2;

/// Checks that no byte costs a server more in one cell than in those of both the next smaller and the next larger size.
/// The share of what each request costs falls with the size, and the share of what caches do not hold rises, so there is
/// no maximum between: a cell that shows one was disturbed.
pub(super) fn check(summaries: &[Summary<'_>]) -> Result<(), String> {
    for Summary { cell, rows } in summaries {
        for row in rows {
            let of_a_byte = |summary: &Summary<'_>| {
                let len = sized(summary.cell)?;
                Some((len, summary.row(row.name)?.get(Metric::Cost)?.median / len as f64))
            };
            let like = || summaries.iter().filter(|other| is_like(other.cell, cell)).filter_map(of_a_byte);
            let Some(len) = sized(cell) else { continue };
            let smaller = like().filter(|&(other, _)| other < len).max_by_key(|&(other, _)| other);
            let larger = like().filter(|&(other, _)| other > len).min_by_key(|&(other, _)| other);
            let here = like().find(|&(other, _)| other == len);
            let (Some((smaller, before)), Some((_, here)), Some((larger, after))) = (smaller, here, larger) else {
                continue;
            };
            if here > TOLERANCE * before.max(after) {
                return Err(format!(
                    "{}: a byte costs {} {} × of what it costs at {}, and {} × of what it costs at {}; measure these \
                     cells again",
                    cell.name,
                    row.name,
                    number(here / before),
                    size(smaller),
                    number(here / after),
                    size(larger)
                ));
            }
        }
    }
    Ok(())
}

/// Returns the length of what is moved, if the cell is one of several that differ by it.
fn sized(cell: &Cell) -> Option<u64> {
    match cell.work {
        Work::File(len) | Work::Upload(len) | Work::Relay(len) => Some(len),
        _ => None,
    }
}

fn is_like(one: &Cell, other: &Cell) -> bool {
    let kind = |cell: &Cell| (discriminant(&cell.work), cell.protocol, cell.workers);
    one.family() == other.family() && kind(one) == kind(other)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::load::Protocol;
    use crate::run::{Arrivals, Record, Results};

    /// A run of one server with files of these lengths, at these costs in microseconds.
    fn run(costs: &[(u64, f64)]) -> Results {
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded.jsonl");
        let mut results = Results::read(&recorded).unwrap();
        let cell = |&(len, _): &(u64, f64)| Cell {
            name: format!("files/{len}"),
            work: Work::File(len),
            protocol: Protocol::H1,
            connections: 16,
            streams: 1,
            workers: 1,
            arrivals: Arrivals::Closed,
        };
        let record = |&(len, cost): &(u64, f64)| Record {
            cell: format!("files/{len}"),
            contender: "nginx".to_owned(),
            round: 0,
            seconds: 1.0,
            done: 1000.0,
            bytes: 0,
            cpu_ns: (cost * 1e6) as u64,
            ..Record::default()
        };
        results.header.cells = costs.iter().map(cell).collect();
        results.rounds = costs.iter().map(record).collect();
        results
    }

    #[test]
    fn a_cell_that_contradicts_both_next_sizes_is_refused() {
        let checked = |costs: &[(u64, f64)]| {
            let results = run(costs);
            check(&Summary::all(&results))
        };
        let (small, middle, large) = (64 << 10, 1 << 20, 16 << 20);
        checked(&[(small, 16.0), (middle, 150.0), (large, 2000.0)]).expect("costs as they are");
        checked(&[(small, 16.0), (middle, 256.0), (large, 5500.0)]).expect("caches hold less of large files");
        checked(&[(small, 16.0), (middle, 352.0)]).expect("nothing to compare with on the other side");
        // In any order of cells.
        for costs in
            [[(small, 16.0), (middle, 352.0), (large, 4664.0)], [(large, 4664.0), (middle, 352.0), (small, 16.0)]]
        {
            let error = checked(&costs).unwrap_err();
            assert!(
                error.starts_with("files/1048576: a byte costs nginx 1.38 × of what it costs at 64 KiB"),
                "{error}"
            );
        }
    }
}
