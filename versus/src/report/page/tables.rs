//! Tables of the page.

use maud::{Markup, html};

use super::styles::{Styles, slug};
use crate::report::frontier::{Frontier, State};
use crate::report::metric::Metric;
use crate::report::summary::{Advice, OURS, Outcome, SHARES, Summary, recommendation};
use crate::report::svg::number;
use measuring::statistics::{Estimate, Verdict};

/// A ratio with its interval, marked if it is decided.
fn ratio(ratio: &Estimate) -> Markup {
    let (class, sign) = match ratio.verdict() {
        Verdict::Above => ("good", "▲ "),
        Verdict::Below => ("bad", "▼ "),
        Verdict::Open => ("", ""),
    };
    html! {
        span class=[(!class.is_empty()).then_some(class)] { (sign) (number(ratio.median)) "×" }
        " " span.range { (number(ratio.low)) "–" (number(ratio.high)) }
    }
}

/// CPU time of each rival by that of millstream.
pub(super) fn overview(summaries: &[Summary<'_>], styles: &Styles<'_>) -> Markup {
    let rivals: Vec<&str> = styles.0.iter().copied().filter(|name| *name != OURS).collect();
    html! {
        div.wide { table {
            thead { tr { th { "cell" } th { (OURS) ", µs" } @for rival in &rivals { th { (rival) } } } }
            tbody {
                @for Summary { cell, rows } in summaries {
                    tr {
                        td { a href=(format!("#{}", slug(&cell.name))) { (cell.name) } }
                        @let ours = rows.iter().find(|row| row.name == OURS).and_then(|row| row.get(Metric::Cost));
                        td { @if let Some(ours) = ours { (number(ours.median)) } }
                        @for rival in &rivals {
                            td {
                                @if let Some(advantage) = rows.iter().find(|row| row.name == *rival).and_then(|row| row.advantage(Metric::Cost)) {
                                    (ratio(&advantage))
                                }
                            }
                        }
                    }
                }
            }
        } }
    }
}

/// Where millstream loses. Cells without a round have no section to link to.
pub(super) fn losses_table(outcome: &Outcome<'_>) -> Markup {
    let Outcome { ours, failures, losses, .. } = outcome;
    html! {
        @if !failures.is_empty() {
            p { "Cells in which " (ours) " failed. They count as lost to each server that did not." }
            div.wide { table.failures {
                thead { tr { th { "cell" } th.left { "did not fail" } th.left { "reason" } } }
                tbody {
                    @for failure in failures {
                        @let others = failure.others.join(", ");
                        tr {
                            td { span.bad { (failure.cell) } }
                            td.left { (if others.is_empty() { "none" } else { &others }) }
                            td.text { (failure.reason) }
                        }
                    }
                }
            } }
        }
        @for sentence in [outcome.nowhere(), outcome.undecided()].into_iter().flatten() { p { (sentence) } }
        @if !losses.is_empty() {
            p { "Every comparison that is lost by 2 % or more, with an interval that excludes 1, the worst first." }
            div.wide { table {
                thead { tr { th { "cell" } th.left { "to" } th.left { "in" } th { "by" } th { (OURS) } th { "the other" } th.left { "unit" } } }
                tbody {
                    @for loss in losses {
                        tr {
                            td { a href=(format!("#{}", slug(&loss.cell.name))) { (loss.cell.name) } }
                            td.left { (loss.rival) } td.left { (loss.metric.name()) }
                            td { span.bad { (number(loss.by.median)) "×" } " " span.range { (number(loss.by.low)) "–" (number(loss.by.high)) } }
                            td { (number(loss.ours)) } td { (number(loss.theirs)) } td.left { (loss.metric.unit(loss.cell.unit())) }
                        }
                    }
                }
            } }
        }
    }
}

/// All points of other servers, and what dominates them.
pub(super) fn frontiers_table(frontiers: &[Frontier<'_>]) -> Markup {
    html! {
        @if frontiers.is_empty() { p { "Neither tokens nor events nor files were measured beside another server." } }
        @else {
            ul { @for frontier in frontiers { li { (frontier.sentence()) "." } } }
            div.wide { table {
                thead { tr {
                    th { "point" } th.left { "server" } th { "throughput" } th { "p99 ms" } th.left { "dominated by" }
                    th { (OURS) " there: × throughput" } th { "× p99" }
                } }
                tbody {
                    @for frontier in frontiers {
                        @for point in &frontier.points {
                            tr {
                                td { a href=(format!("#{}", slug(&point.cell.name))) { (point.cell.name) } }
                                td.left { (frontier.rival) }
                                td { (value(point.throughput)) } td { (value(point.p99)) }
                                td.left {
                                    @match point.state {
                                        State::Dominated(by) => (by),
                                        State::Undominated => span.bad { "not dominated" },
                                        State::Open => "not decided",
                                    }
                                }
                                @for advantage in &point.beside {
                                    td { @if let Some(advantage) = advantage { (ratio(advantage)) } @else { "-" } }
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn value(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// What a sweep recommends.
pub(super) fn advice_table(advice: &[Advice<'_>]) -> Markup {
    let (sentence, settings) = recommendation(advice);
    let changes = |changes: &[(&str, Metric, f64)]| -> String {
        let text = |(cell, metric, by): &(&str, Metric, f64)| format!("{cell} {} {}×", metric.name(), number(*by));
        changes.iter().map(text).collect::<Vec<_>>().join(", ")
    };
    html! {
        p {
            (sentence)
            @for (n, setting) in settings.iter().enumerate() { @if n > 0 { ", " } strong { (setting) } }
            @if !settings.is_empty() { "." }
            " For one kind of workload alone, see its row."
        }
        div.wide { table {
            thead { tr {
                th { "setting" } th.left { "better than the defaults in" } th.left { "worse in" }
                th.left { "failed in" } th.left { "too few rounds in" }
            } }
            tbody {
                @for a in advice {
                    tr {
                        td { (a.setting) } td.text.good { (changes(&a.better)) }
                        td.text.bad { (changes(&a.worse)) } td.text.bad { (a.failed.join(", ")) }
                        td.text { (a.open.join(", ")) }
                    }
                }
            }
        } }
    }
}

/// All figures of a cell.
pub(super) fn figures(summary: &Summary<'_>) -> Markup {
    let Summary { cell, rows } = summary;
    let counted = rows.iter().any(|row| row.calls.is_some());
    let offered = rows.iter().any(|row| row.completed.is_some());
    html! {
        div.wide { table.figures {
            thead { tr {
                th { "server" }
                th { "CPU µs/" (cell.unit().one()) } th { "× CPU" }
                th { (cell.unit().many()) "/s" } th { "× slower" }
                @for (_, name) in SHARES { th { (name) " ms" } }
                th { "× p99" } th { "× p99.9" } th { "Pss MiB" }
                @if cell.rests() { th { "KiB/connection" } th { "× KiB" } }
                @if offered { th { "completed" } }
                @if counted { th { "calls" } }
                th { "load" }
            } }
            tbody {
                @for row in rows {
                    tr {
                        td { (row.name) }
                        td { (estimate(row.get(Metric::Cost))) } td { @if let Some(a) = row.advantage(Metric::Cost) { (ratio(&a)) } }
                        td { (estimate(row.get(Metric::Rate))) } td { @if let Some(a) = row.advantage(Metric::Rate) { (ratio(&a)) } }
                        @for latency in row.latencies { td { (value(latency)) } }
                        @for metric in [Metric::P99, Metric::P999] {
                            td {
                                @if let Some(a) = row.advantage(metric) { (ratio(&a)) }
                                @else if row.name != OURS { "-" }
                            }
                        }
                        td { (value(row.get(Metric::Memory).map(|memory| memory.median))) }
                        @if cell.rests() {
                            td { (estimate(row.get(Metric::Idle))) }
                            td { @if let Some(a) = row.advantage(Metric::Idle) { (ratio(&a)) } }
                        }
                        @if offered {
                            td {
                                @if let Some(share) = row.completed {
                                    span class=[row.falls_behind().then_some("bad")] { (number(share * 100.0)) " %" }
                                } @else { "-" }
                            }
                        }
                        @if counted { td { @if let Some(calls) = row.calls { (number(calls.all)) } @else { "-" } } }
                        td { (number(row.load * 100.0)) " %" }
                    }
                }
            }
        } }
        @if counted { details {
            summary.soft { "System calls for each " (cell.unit().one()) ", by name" }
            @for row in rows {
                @if let Some(calls) = row.calls.filter(|calls| !calls.named.is_empty()) {
                    @let names = named(&calls.named);
                    p.soft { strong { (row.name) } ": " (names) }
                }
            }
        } }
    }
}

/// The calls that make up more than a hundredth of all, the most frequent first.
fn named(calls: &std::collections::BTreeMap<String, f64>) -> String {
    let all: f64 = calls.values().sum();
    let mut calls: Vec<(&String, f64)> = calls.iter().map(|(name, count)| (name, *count)).collect();
    calls.sort_by(|a, b| b.1.total_cmp(&a.1));
    let text = |(name, count): &(&String, f64)| format!("{name} {}", number(*count));
    calls.iter().filter(|(_, count)| count * 100.0 > all).map(text).collect::<Vec<_>>().join(", ")
}

fn estimate(estimate: Option<Estimate>) -> Markup {
    html! {
        @if let Some(estimate) = estimate {
            (number(estimate.median)) " " span.range { (number(estimate.low)) "–" (number(estimate.high)) }
        } @else { "-" }
    }
}
