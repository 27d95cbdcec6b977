//! Tables for the terminal, and in Markdown.

use std::fmt::Write as _;

use super::frontier::frontiers;
use super::metric::Metric;
use super::summary::{OURS, Outcome, SHARES, Summary, advice, behind, recommendation};
use super::svg::number;
use crate::run::{Arrivals, Results};
use measuring::statistics::Verdict;

/// Returns the names of all servers, ours first.
fn names<'a>(summaries: &'a [Summary<'a>]) -> Vec<&'a str> {
    let mut names = vec![OURS];
    for row in summaries.iter().flat_map(|summary| &summary.rows) {
        if !names.contains(&row.name) {
            names.push(row.name);
        }
    }
    names
}

/// Aligns columns: the first to the left, the others to the right.
fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |n: usize| rows.iter().filter_map(|row| row.get(n)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (n, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match n {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            }
            .expect("memory takes all");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// CPU time of all servers, and where millstream loses.
pub(super) fn terminal(results: &Results, summaries: &[Summary<'_>]) -> String {
    let names = names(summaries);
    let mut rows = vec![
        std::iter::once("CPU µs for each".to_owned()).chain(names.iter().map(|name| (*name).to_owned())).collect(),
    ];
    for Summary { cell, rows: servers } in summaries {
        let mut row = vec![format!("{} {}", cell.name, cell.unit().one())];
        row.extend(names.iter().map(|name| {
            let Some(server) = servers.iter().find(|server| server.name == *name) else { return String::new() };
            let cost = server.get(Metric::Cost).map_or_else(|| "-".to_owned(), |cost| number(cost.median));
            match server.advantage(Metric::Cost) {
                None => cost,
                Some(ratio) => {
                    let sign = match ratio.verdict() {
                        Verdict::Above => '+',
                        Verdict::Below => '-',
                        Verdict::Open => '~',
                    };
                    format!("{cost} ({}×{sign})", number(ratio.median))
                }
            }
        }));
        rows.push(row);
    }
    let mut text = align(&rows);
    text += "+ millstream needs less by 2 % or more, and the interval of the ratio excludes 1; - more; ~ not decided\n";
    if let Some(mtu) = results.header.plan.mtu {
        writeln!(text, "\nThe MTU of the loopback device was {mtu}.").expect("memory takes all");
    }
    let behind = behind(summaries);
    if !behind.is_empty() {
        text += "\nWhere a server did not keep up with the load\n";
        behind.iter().for_each(|sentence| text += &format!("{sentence}\n"));
    }
    let outcome = Outcome::of(results, summaries);
    writeln!(text, "\nWhere {}", outcome.loses()).expect("memory takes all");
    text += &sentences(&outcome, "");
    let mut rows = vec![];
    for loss in outcome.losses {
        rows.push(vec![
            format!("{} to {} in {}", loss.cell.name, loss.rival, loss.metric.name()),
            format!("{}×", number(loss.by.median)),
            format!("{}–{}", number(loss.by.low), number(loss.by.high)),
        ]);
    }
    text += &align(&rows);
    text += &verdicts(results, summaries, "");
    for skipped in &results.skipped {
        let place = if skipped.cell.is_empty() { String::new() } else { format!("{}: ", skipped.cell) };
        writeln!(text, "not measured: {place}{}: {}", skipped.contender, skipped.reason).expect("memory takes all");
    }
    text
}

/// Tables for a page of documentation: one for each metric, the best of a row in bold.
pub(super) fn markdown(results: &Results, summaries: &[Summary<'_>]) -> String {
    let (machine, plan) = (&results.header.machine, &results.header.plan);
    let names = names(summaries);
    let mut text = format!(
        "Linux {}, {}, {} CPUs, {}; commit {}; {}medians of {} rounds of {} s.\n",
        machine.kernel,
        machine.cpu,
        machine.cores,
        machine.build,
        machine.commit,
        if machine.mtu.is_empty() { String::new() } else { format!("MTU of loopback {}; ", machine.mtu) },
        plan.rounds,
        number(plan.seconds)
    );
    for metric in Metric::ALL {
        // All tables have all cells, but that of idle connections, which few cells have.
        let has = |summary: &&Summary<'_>| metric != Metric::Idle || summary.cell.rests();
        let summaries: Vec<_> = summaries.iter().filter(has).collect();
        if summaries.is_empty() && metric == Metric::Idle {
            continue;
        }
        text += &head(metric.title(), &names);
        for Summary { cell, rows } in summaries {
            let medians: Vec<Option<f64>> = names
                .iter()
                .map(|name| rows.iter().find(|row| row.name == *name)?.get(metric).map(|estimate| estimate.median))
                .collect();
            let order = |a: &f64, b: &f64| if metric == Metric::Rate { b.total_cmp(a) } else { a.total_cmp(b) };
            let best = medians.iter().flatten().copied().min_by(order);
            write!(text, "| {} |", cell.describe()).expect("memory takes all");
            for median in &medians {
                match median {
                    Some(value) if *median == best => write!(text, " **{}** |", number(*value)),
                    Some(value) => write!(text, " {} |", number(*value)),
                    None => write!(text, " - |"),
                }
                .expect("memory takes all");
            }
            text.push('\n');
        }
    }
    text += &at_a_rate(summaries, &names);
    let behind = behind(summaries);
    if !behind.is_empty() {
        text += "\nWhere a server did not keep up with the load:\n\n";
        behind.iter().for_each(|sentence| text += &format!("- {sentence}\n"));
    }
    let outcome = Outcome::of(results, summaries);
    writeln!(text, "\nWhere {}:\n", outcome.loses()).expect("memory takes all");
    text += &sentences(&outcome, "- ");
    for loss in &outcome.losses {
        let unit = loss.metric.unit(loss.cell.unit());
        writeln!(
            text,
            "- {}: {} of {} is {} {unit} against {}, {} × ({} to {}).",
            loss.cell.describe(),
            loss.metric.name(),
            loss.rival,
            number(loss.theirs),
            number(loss.ours),
            number(loss.by.median),
            number(loss.by.low),
            number(loss.by.high)
        )
        .expect("memory takes all");
    }
    text += &verdicts(results, summaries, "- ");
    text
}

/// Returns the title and the head of a table.
fn head(title: &str, names: &[&str]) -> String {
    format!("\n{title}:\n\n| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()))
}

/// Returns a table of latencies in open loops, of all rounds together.
fn at_a_rate(summaries: &[Summary<'_>], names: &[&str]) -> String {
    let open: Vec<_> = summaries.iter().filter(|summary| matches!(summary.cell.arrivals, Arrivals::Open(_))).collect();
    if open.is_empty() {
        return String::new();
    }
    let mut text =
        head("Latency in an open loop, from the time at which a request is due: p50, p99 and p99.9, ms", names);
    for summary in open {
        write!(text, "| {} |", summary.cell.describe()).expect("memory takes all");
        for name in names {
            let values = summary.row(name).map(|row| {
                let values =
                    SHARES.iter().zip(row.latencies).filter(|((_, name), _)| ["p50", "p99", "p99.9"].contains(name));
                values.map(|(_, value)| value.map_or_else(|| "-".to_owned(), number)).collect::<Vec<_>>().join(", ")
            });
            write!(text, " {} |", values.as_deref().unwrap_or("-")).expect("memory takes all");
        }
        text.push('\n');
    }
    text
}

/// Says which cells have failed, and what was decided.
fn sentences(outcome: &Outcome<'_>, item: &str) -> String {
    let mut text = String::new();
    for failure in &outcome.failures {
        let others = if failure.others.is_empty() { "none".to_owned() } else { failure.others.join(", ") };
        writeln!(text, "{item}{}: {} failed: {}; did not fail: {others}", failure.cell, outcome.ours, failure.reason)
            .expect("memory takes all");
    }
    for sentence in [outcome.nowhere(), outcome.undecided()].into_iter().flatten() {
        writeln!(text, "{item}{sentence}").expect("memory takes all");
    }
    text
}

/// Says what the frontiers of a run show, or what a sweep recommends.
fn verdicts(results: &Results, summaries: &[Summary<'_>], item: &str) -> String {
    let gap = if item.is_empty() { "" } else { "\n" };
    let mut text = String::new();
    if results.header.plan.sweep {
        let advice = advice(results, summaries);
        let (sentence, settings) = recommendation(&advice);
        return format!("\nSettings for this machine\n{gap}{item}{sentence}{}\n", settings.join(", "));
    }
    for frontier in frontiers(summaries) {
        if text.is_empty() {
            text = format!("\nFrontiers of throughput and p99\n{gap}");
        }
        for line in std::iter::once(frontier.sentence()).chain(frontier.lines()) {
            writeln!(text, "{item}{line}").expect("memory takes all");
        }
    }
    text
}
