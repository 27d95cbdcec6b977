//! The page: one HTML document without scripts or other files.

mod cells;
mod styles;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::frontier::frontiers;
use super::summary::{Outcome, Summary, advice, behind};
use super::svg::number;
use crate::run::Results;
use styles::{Styles, slug};
use tables::{advice_table, frontiers_table, losses_table, overview};

const STYLE: &str = include_str!("style.css");

/// Returns the page of a run, with links to its raw results beside it.
pub(super) fn page(results: &Results, summaries: &[Summary<'_>], raw: &[String]) -> String {
    let styles = Styles::of(summaries);
    let header = &results.header;
    let (machine, plan) = (&header.machine, &header.plan);
    let title = if plan.sweep { "Settings of millstream on this machine" } else { "millstream beside other servers" };
    let mut families: Vec<&str> = Vec::new();
    for summary in summaries {
        if !families.contains(&summary.cell.family()) {
            families.push(summary.cell.family());
        }
    }
    let outcome = Outcome::of(results, summaries);
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    p.soft {
                        (machine.cpu) ", " (machine.cores) " CPUs, Linux " (machine.kernel) ", " (machine.date) ". "
                        (plan.rounds) " rounds of " (number(plan.seconds)) " s, servers in turns."
                    }
                    nav aria-label="Sections" {
                        a href="#overview" { "overview" }
                        a href="#losses" { "losses" }
                        @if !plan.sweep { a href="#frontiers" { "frontiers" } }
                        @for family in &families { a href=(format!("#{}", slug(family))) { (family) } }
                        a href="#machine" { "machine" }
                        a href="#method" { "method" }
                    }
                    @for note in notes(results, summaries) { p.note { (note) } }
                }
                main {
                    section id="overview" {
                        h2 { "Overview" }
                        @if summaries.is_empty() { p { "Nothing was measured." } }
                        @else {
                            p {
                                "CPU time of each server for the same work, as a multiple of that of millstream"
                                @if plan.sweep { " with its defaults" }
                                ": above 1 millstream needs less. The range is the interval of the median of the ratios of single rounds. "
                                span.good { "▲" } " and " span.bad { "▼" } " mark ratios whose interval does not contain 1, and that differ from it by 2 % or more."
                            }
                            (overview(summaries, &styles))
                        }
                    }
                    section id="losses" {
                        h2 { "Where " (outcome.loses()) }
                        (losses_table(&outcome))
                    }
                    @if plan.sweep {
                        section id="advice" { h2 { "Settings for this machine" } (advice_table(&advice(results, summaries))) }
                    } @else {
                        section id="frontiers" {
                            h2 { "Frontiers" }
                            p {
                                "Throughput and p99 of a workload, by more and more connections. A point of another server is dominated if a "
                                "point of millstream is not worse beyond the noise in either, and better beyond the noise in one. Events come at "
                                "the rate of their source: their throughput is what a second of CPU time delivers, and a point with fewer "
                                "readers does not dominate."
                            }
                            (frontiers_table(&frontiers(summaries)))
                        }
                    }
                    @for family in &families { (cells::family(family, summaries, &styles)) }
                    section id="skipped" {
                        h2 { "Not measured" }
                        @if results.skipped.is_empty() { p { "Everything that was planned was measured." } }
                        @else {
                            div.wide { table {
                                thead { tr { th { "cell" } th.left { "server" } th.left { "reason" } } }
                                tbody {
                                    @for skipped in &results.skipped {
                                        tr {
                                            td { (or(&skipped.cell, "all")) } td.left { (or(&skipped.contender, "all")) }
                                            td.text { (skipped.reason) }
                                        }
                                    }
                                }
                            } }
                        }
                    }
                    (provenance(results, raw))
                    (method())
                }
            }
        }
    };
    whole.into_string()
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

/// What a reader should know before the figures.
fn notes(results: &Results, summaries: &[Summary<'_>]) -> Vec<String> {
    let (machine, plan) = (&results.header.machine, &results.header.plan);
    let mut notes = Vec::new();
    if machine.build.starts_with("debug") {
        notes.push("The program was built without optimisation. The figures mean nothing.".to_owned());
    }
    if plan.rounds < 6 {
        let coverage = 100.0 * (1.0 - 0.5f64.powi(plan.rounds as i32 - 1));
        notes.push(format!(
            "With {} rounds an interval is the range of all of them, and contains the true median with a probability of {} %. \
             Fewer than five rounds decide nothing.",
            plan.rounds,
            number(coverage)
        ));
    }
    if machine.congestion.starts_with("bbr") {
        notes.push(
            "The congestion control of this machine, bbr, paces on loopback, too: long responses measure its timers. \
             sysctl net.ipv4.tcp_congestion_control=cubic avoids that."
                .to_owned(),
        );
    }
    let load: f64 = machine.load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    if load > 0.5 {
        notes.push(format!(
            "The machine had other work: its load was {load} at the start. Trust ratios of CPU time most."
        ));
    }
    if let Some(mtu) = plan.mtu {
        notes.push(format!("The MTU of the loopback device was {mtu}, in a network namespace of this run."));
    }
    notes.extend(behind(summaries));
    let shared = summaries.iter().any(|summary| summary.cell.workers as usize >= machine.cores);
    if shared {
        notes.push("Where a server has as many workers as there are CPUs, the load shares them with it.".to_owned());
    }
    notes
}

fn provenance(results: &Results, raw: &[String]) -> Markup {
    let machine = &results.header.machine;
    let crates: Vec<String> = machine.crates.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let rows = [
        ("CPU", format!("{} ({} usable)", machine.cpu, machine.cores)),
        ("memory", machine.memory.clone()),
        ("kernel", machine.kernel.clone()),
        ("governor", machine.governor.clone()),
        ("congestion control", machine.congestion.clone()),
        ("MTU of loopback", machine.mtu.clone()),
        ("load at the start", machine.load.clone()),
        ("compiler", machine.rustc.clone()),
        ("build", machine.build.clone()),
        ("commit", machine.commit.clone()),
        ("crates", crates.join(", ")),
        ("date", machine.date.clone()),
    ];
    html! {
        section id="machine" {
            h2 { "Machine" }
            dl { @for (name, value) in rows { dt { (name) } dd { (value) } } }
            p { "Raw results: " @for (n, name) in raw.iter().enumerate() { @if n > 0 { ", " } a href=(name) { (name) } } "." }
        }
    }
}

fn method() -> Markup {
    html! {
        section id="method" {
            h2 { "Method" }
            p {
                "Each round starts a server anew, on CPUs of its own where there are enough; the load runs on the others. The first round "
                "compares a whole response byte by byte. The clock starts when every connection has had a response. The load is a closed "
                "loop: each connection asks again as soon as it has its answer. Events are sent at a fixed rate, and their latency is the "
                "time from the sender's clock to the reader."
            }
            p {
                "Tokens at a pace begin at times spread over the 20 ms, the same in all servers, and their latency counts from the time at "
                "which the server's timer is due. In an open loop the times of requests are a Poisson process, the same for all servers of a "
                "round. A request whose connection is busy waits, and its latency counts from the time at which it was due. A server that "
                "completes less than 98 % of what is offered does not keep up. The memory of idle connections is the Pss 13 s after a burst of "
                "requests, above that before the first connection, for each connection; CPU time there is that from the first connection to the "
                "end. nginx allocates the records of all connections that it may have at its start, so that these are not counted there."
            }
            p {
                "CPU time is that of all threads and processes of the server, in the kernel and outside. Memory is its "
                "proportional set size (Pss) at the end of a round: a page that several of its processes map counts once, pages of "
                "files that it maps count, and those that are in the page cache alone do not. Throughput is limited by whichever is busier, the server or the load; a load that is always busy is marked in the tables. "
                "Ratios are formed within a round, so that other work on the machine affects both sides, and their median has a rank interval "
                "of at least 95 % where there are six rounds or more. With hundreds of comparisons, a few intervals miss the truth by chance."
            }
            p {
                "System calls are counted in a pass of their own, because that slows the server down. A p99 needs a hundred responses, a p99.9 "
                "a thousand, a p99.99 ten thousand; where there were fewer, it is left out."
            }
        }
    }
}
