//! The sections of the page with plots: families of cells, and their cells.

use maud::{Markup, html};

use super::styles::{Styles, slug};
use super::tables::figures;
use crate::report::metric::Metric;
use crate::report::summary::{SHARES, Summary, behind};
use crate::report::svg::{Bar, Plot, Series, bars, number};
use measuring::statistics::Estimate;

/// Families in which one load grows: their frontier is a line.
const GROWING: [&str; 4] = ["connections", "tokens", "events", "workers"];

/// What the families are.
fn about(family: &str) -> &'static str {
    match family {
        "json" => "Small responses, where HTTP itself is the work.",
        "files" => "Files from the page cache.",
        "tokens" => "Responses that are computed piece by piece, as a language model does.",
        "paced" => {
            "Responses of their own for each reader at the pace of a language model: one token each 20 ms. The load is given."
        }
        "rate" => {
            "Open loops: requests at given times, whether or not responses come. Latencies count from the time at which a request is due."
        }
        "churn" => "A new connection for each request.",
        "rest" => "Memory of connections that are idle after a burst.",
        "proxy" => "Responses of another server.",
        "events" => "Server-sent events of one source for many readers.",
        "uploads" => "Request bodies into files, without a sync.",
        "relay" => "Bytes between two sockets, both ways.",
        "http2" => "HTTP/2 without TLS.",
        "tls" => "TLS 1.3, in the process.",
        "connections" => "The same small file, by more and more connections.",
        "workers" => "The same small file, by more and more threads of the server.",
        _ => "",
    }
}

pub(super) fn family(family: &str, summaries: &[Summary<'_>], styles: &Styles<'_>) -> Markup {
    let cells: Vec<&Summary<'_>> = summaries.iter().filter(|summary| summary.cell.family() == family).collect();
    let growing = GROWING.contains(&family) && cells.len() > 1;
    html! {
        section id=(slug(family)) {
            h2 { (family) }
            p { (about(family)) }
            (styles.legend(|name| cells.iter().any(|summary| summary.rows.iter().any(|row| row.name == name))))
            @if growing { div.plots { (frontier(family, &cells, styles)) } }
            @for summary in &cells { (cell(summary, styles)) }
        }
    }
}

fn figure(title: &str, better: &str, drawing: Markup) -> Markup {
    html! { figure { h4 { (title) } (drawing) figcaption { (better) } } }
}

/// Throughput and p99 of all cells of a family, joined for each server.
fn frontier(family: &str, cells: &[&Summary<'_>], styles: &Styles<'_>) -> Markup {
    let series = styles.0.iter().enumerate().map(|(style, &name)| {
        let points = cells.iter().filter_map(|summary| {
            let row = summary.rows.iter().find(|row| row.name == name)?;
            let (x, y) = (row.throughput(summary.cell.unit())?, row.get(Metric::P99)?.median);
            Some((x, y, format!("{}, {}/s, p99 {} ms", summary.cell.describe(), number(x), number(y))))
        });
        Series { name, style, cloud: Vec::new(), points: points.collect() }
    });
    let plot = Plot {
        id: format!("{}-frontier", slug(family)),
        title: "Frontier of throughput and p99",
        x: cells.first().map_or_else(String::new, |summary| Metric::throughput_unit(summary.cell.unit())),
        y: "p99, ms".to_owned(),
        places: None,
        series: series.filter(|series| !series.points.is_empty()).collect(),
    };
    figure("Frontier", "Each marker is one number of the family. Right and low is better.", plot.draw())
}

fn cell(summary: &Summary<'_>, styles: &Styles<'_>) -> Markup {
    let Summary { cell, rows } = summary;
    let id = slug(&cell.name);
    let one = cell.unit().one();
    let pareto = Plot {
        id: format!("{id}-pareto"),
        title: "Throughput and p99",
        x: Metric::throughput_unit(cell.unit()),
        y: "p99, ms".to_owned(),
        places: None,
        series: rows
            .iter()
            .map(|row| {
                let median = row.throughput(cell.unit()).zip(row.get(Metric::P99));
                let point = |(x, y): (f64, f64)| (x, y, format!("{}/s, p99 {} ms", number(x), number(y)));
                Series {
                    name: row.name,
                    style: styles.style(row.name),
                    cloud: row.rounds.clone(),
                    points: median.map(|(x, y)| point((x, y.median))).into_iter().collect(),
                }
            })
            .collect(),
    };
    let names: Vec<&str> = SHARES.iter().map(|(_, name)| *name).collect();
    let percentiles = Plot {
        id: format!("{id}-latency"),
        title: "Latency by percentile",
        x: "percentile".to_owned(),
        y: "ms".to_owned(),
        places: Some(&names),
        series: rows
            .iter()
            .map(|row| {
                let points = row.latencies.iter().enumerate().filter_map(|(place, latency)| {
                    let latency = (*latency)?;
                    Some((place as f64, latency, format!("{} {} ms", SHARES[place].1, number(latency))))
                });
                Series { name: row.name, style: styles.style(row.name), cloud: Vec::new(), points: points.collect() }
            })
            .collect(),
    };
    let bar = |metric: Metric| -> Vec<Bar<'_>> {
        rows.iter()
            .filter_map(|row| {
                let Estimate { median, low, high, .. } = row.get(metric)?;
                Some(Bar { name: row.name, style: styles.style(row.name), value: median, range: Some((low, high)) })
            })
            .collect()
    };
    let calls: Vec<Bar<'_>> = rows
        .iter()
        .filter_map(|row| {
            let value = row.calls?.all;
            Some(Bar { name: row.name, style: styles.style(row.name), value, range: None })
        })
        .collect();
    html! {
        article id=(id) {
            h3 { (cell.name) }
            p.soft { (cell.describe()) }
            @for sentence in behind(std::slice::from_ref(summary)) { p.note { (sentence) } }
            div.plots {
                // Responses of the burst before the pause are not timed.
                @if !cell.rests() {
                    (figure("Throughput and p99", "Small dots are rounds, markers medians. Right and low is better.", pareto.draw()))
                    (figure("Latency", "All rounds together. Low is better.", percentiles.draw()))
                }
                div.stack {
                    (figure(
                        &format!("CPU time, µs for each {one}"), "Less is better.",
                        bars(&format!("{id}-cost"), "CPU time", &bar(Metric::Cost)),
                    ))
                    (figure("Memory (Pss), MiB", "Less is better.", bars(&format!("{id}-memory"), "Memory", &bar(Metric::Memory))))
                    @if cell.rests() {
                        (figure(
                            "Memory for each idle connection (Pss), KiB", "Above that before the first connection. Less is better.",
                            bars(&format!("{id}-idle"), "Memory for each idle connection", &bar(Metric::Idle)),
                        ))
                    }
                    @if !calls.is_empty() {
                        (figure(
                            &format!("System calls for each {one}"), "One pass, without an interval. Less is better.",
                            bars(&format!("{id}-calls"), "System calls", &calls),
                        ))
                    }
                }
            }
            (figures(summary))
        }
    }
}
