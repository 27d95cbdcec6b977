//! What has changed between two runs beyond their noise.

use std::fmt::Write as _;
use std::path::Path;

use super::metric::Metric;
use super::summary::Summary;
use super::svg::number;
use crate::run::Results;
use crate::say;
use measuring::statistics::{ENOUGH, SMALLEST, Verdict};

/// Calls are counted once, without an interval. Less than this share is noise.
const CALLS: f64 = 0.1;

/// Prints what has changed.
pub(crate) fn compare(before: &Path, after: &Path) -> Result<(), String> {
    let (before, after) = (Results::read(before)?, Results::read(after)?);
    say(changes(&before, &after));
    Ok(())
}

/// Returns a line for each median that has changed, by the rule of all verdicts.
pub(super) fn changes(before: &Results, after: &Results) -> String {
    let mut text = String::new();
    let (old, new) = (&before.header.machine, &after.header.machine);
    for (what, old, new) in
        [("kernel", &old.kernel, &new.kernel), ("CPU", &old.cpu, &new.cpu), ("build", &old.build, &new.build)]
    {
        if old != new {
            writeln!(text, "another {what}: {old}, then {new}").expect("memory takes all");
        }
    }
    let (old, new) = (Summary::all(before), Summary::all(after));
    let (mut compared, mut changed) = (0, 0);
    let mut line = |line: String, is_change: bool| {
        compared += 1;
        changed += u32::from(is_change);
        if is_change {
            text += &line;
        }
    };
    for new in &new {
        // A cell whose definition has changed is another cell.
        let Some(old) = old.iter().find(|old| old.cell == new.cell) else { continue };
        for row in &new.rows {
            let Some(was) = old.rows.iter().find(|was| was.name == row.name) else { continue };
            for metric in Metric::ALL {
                let (Some(was), Some(is)) = (was.get(metric), row.get(metric)) else { continue };
                let ratio = is.over(&was);
                let better = (ratio.median < 1.0) != (metric == Metric::Rate);
                line(
                    format!(
                        "{} {} {}: {} ({}–{}), was {} ({}–{}): {} by {:.1} %\n",
                        new.cell.name,
                        row.name,
                        metric.name(),
                        number(is.median),
                        number(is.low),
                        number(is.high),
                        number(was.median),
                        number(was.low),
                        number(was.high),
                        if better { "better" } else { "worse" },
                        (ratio.median - 1.0).abs() * 100.0
                    ),
                    ratio.verdict() != Verdict::Open,
                );
            }
            if let (Some(was), Some(is)) = (was.calls, row.calls) {
                let change = is.all / was.all - 1.0;
                let word = if change < 0.0 { "better" } else { "worse" };
                line(
                    format!(
                        "{} {} system calls: {}, was {}: {word}\n",
                        new.cell.name,
                        row.name,
                        number(is.all),
                        number(was.all)
                    ),
                    change.abs() > CALLS,
                );
            }
        }
    }
    let (few, percent) = (ENOUGH, (SMALLEST - 1.0) * 100.0);
    writeln!(
        text,
        "{changed} of {compared} figures have changed: their intervals, of {few} rounds or more, do not overlap, and the \
         medians differ by {percent:.0} % or more; calls differ by {:.0} %",
        CALLS * 100.0
    )
    .expect("memory takes all");
    text
}
