//! The page of a recorded run, read by an HTML parser; and what runs with known differences say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use scraper::{Html, Selector};

use super::compare::changes;
use super::page::page;
use super::statistics::Verdict;
use super::summary::{Metric, OURS, Summary, advice, losses};
use super::text::{markdown, terminal};
use crate::run::{Record, Results};

fn recorded() -> Results {
    Results::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded.jsonl")).unwrap()
}

fn select(html: &Html, selector: &str) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    html.select(&selector).map(|element| element.html()).collect()
}

fn attributes(html: &Html, selector: &str, name: &str) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    html.select(&selector).filter_map(|element| element.attr(name)).map(str::to_owned).collect()
}

fn check_page(results: &Results) -> Html {
    let summaries = Summary::all(results);
    let text = page(results, &summaries, &["run.json".to_owned()]);
    let html = Html::parse_document(&text);
    assert_eq!(html.errors, Vec::<String>::new());
    let words = text_of(&html);
    assert!(!words.split(|c: char| !c.is_alphanumeric()).any(|word| ["NaN", "inf"].contains(&word)), "{words}");
    assert_eq!(select(&html, "script, link, img, iframe, [style], [onclick]"), Vec::<String>::new());
    for attribute in ["cx", "cy", "x", "y", "x1", "y1", "width", "height", "points", "d"] {
        for value in attributes(&html, &format!("svg [{attribute}]"), attribute) {
            assert!(!value.contains("NaN") && !value.contains("inf"), "{attribute}={value}");
        }
    }

    // Every link within the page has its end, and no id is there twice.
    let ids = attributes(&html, "[id]", "id");
    let unique: BTreeSet<_> = ids.iter().cloned().collect();
    assert_eq!(ids.len(), unique.len(), "{ids:?}");
    for link in attributes(&html, "a[href^='#']", "href").iter().map(|link| link[1..].to_owned()) {
        assert!(unique.contains(&link), "#{link} leads nowhere");
    }
    for label in attributes(&html, "[aria-labelledby]", "aria-labelledby") {
        assert!(unique.contains(&label), "no {label}");
    }

    // Every server of a cell is in each of its plots, and in its table.
    for summary in &summaries {
        let id: String = summary.cell.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let names: BTreeSet<String> = summary.rows.iter().map(|row| row.name.to_owned()).collect();
        for plot in ["pareto", "latency", "cost", "memory"] {
            let series = attributes(&html, &format!("#{id}-{plot} g[data-series]"), "data-series");
            assert_eq!(series.into_iter().collect::<BTreeSet<_>>(), names, "{id}-{plot}");
            assert!(!select(&html, &format!("#{id}-{plot} :is(.m, .bar)")).is_empty(), "{id}-{plot} is empty");
        }
        let counted: BTreeSet<_> =
            summary.rows.iter().filter(|row| row.calls.is_some()).map(|row| row.name.to_owned()).collect();
        let series = attributes(&html, &format!("#{id}-calls g[data-series]"), "data-series");
        assert_eq!(series.into_iter().collect::<BTreeSet<_>>(), counted, "{id}-calls");
        assert_eq!(select(&html, &format!("#{id} tbody tr")).len(), names.len());
        // Nothing is drawn outside of a plot.
        for x in attributes(&html, &format!("#{id} circle"), "cx") {
            assert!((0.0..=380.0).contains(&x.parse::<f64>().unwrap()), "{x}");
        }
    }
    html
}

fn text_of(html: &Html) -> String {
    let body = Selector::parse("body").unwrap();
    html.select(&body).flat_map(|body| body.text()).collect::<Vec<_>>().join(" ")
}

/// A run whose servers differ by known factors: `cost` of each name in CPU time, which decides the rest.
fn synthetic(costs: &[(&str, f64)], rounds: u32) -> Results {
    let mut results = recorded();
    results.header.cells.truncate(1);
    results.header.plan.rounds = rounds;
    results.calls.clear();
    results.skipped.clear();
    let cell = results.header.cells[0].name.clone();
    let record = |name: &str, cost: f64, round: u32| {
        // Noise of 2 %, other noise for each server, and a machine that is half as fast in every third round.
        let noise = 1.0 + 0.01 * f64::from((round * 7 + name.len() as u32) % 5) - 0.02;
        let nanos = 10_000.0 * cost * noise * if round.is_multiple_of(3) { 2.0 } else { 1.0 };
        Record {
            cell: cell.clone(),
            contender: name.to_owned(),
            round,
            seconds: 1.0,
            done: (1e9 / nanos).floor(),
            bytes: 0,
            cpu_ns: 1_000_000_000,
            load_cpu_ns: 500_000_000,
            peak_kib: 10 << 10,
            latency: vec![(nanos as u64, 990), (nanos as u64 * 3, 10)],
        }
    };
    results.rounds =
        (0..rounds).flat_map(|round| costs.iter().map(move |(name, cost)| record(name, *cost, round))).collect();
    results
}

#[test]
fn the_page_of_a_recorded_run_is_whole() {
    let results = recorded();
    assert!(results.header.cells.len() >= 2 && !results.calls.is_empty());
    let html = check_page(&results);
    assert!(!select(&html, "#overview tbody tr").is_empty());
    let terminal = terminal(&results, &Summary::all(&results));
    for cell in &results.header.cells {
        assert!(terminal.contains(&cell.name) && text_of(&html).contains(&cell.name));
    }
}

#[test]
fn names_and_reasons_are_escaped() {
    let mut results = synthetic(&[(OURS, 1.0), ("a<b>&\"c\"", 2.0)], 5);
    results.header.machine.cpu = "</style><i>".to_owned();
    results.skipped.push(crate::run::Skipped {
        cell: String::new(),
        contender: "<b>".to_owned(),
        reason: "<script>alert(1)</script>".to_owned(),
    });
    let html = check_page(&results);
    assert_eq!(select(&html, "script, i, b"), Vec::<String>::new());
}

#[test]
fn an_empty_run_and_a_run_of_one_round_have_a_page() {
    check_page(&synthetic(&[(OURS, 1.0)], 0));
    check_page(&synthetic(&[(OURS, 1.0), ("stock", 2.0)], 1));
    check_page(&synthetic(&[("stock", 2.0)], 3));
}

#[test]
fn wins_losses_and_draws_are_told_apart() {
    let results = synthetic(&[(OURS, 1.0), ("slow", 2.0), ("fast", 0.5), ("same", 1.0)], 7);
    let summaries = Summary::all(&results);
    let verdicts: BTreeMap<&str, Verdict> =
        summaries[0].rows.iter().filter_map(|row| Some((row.name, row.advantage(Metric::Cost)?.verdict()))).collect();
    let expected = [("slow", Verdict::Above), ("fast", Verdict::Below), ("same", Verdict::Open)];
    assert_eq!(verdicts, expected.into_iter().collect());
    // Throughput counts the other way round.
    let slow = summaries[0].rows.iter().find(|row| row.name == "slow").unwrap();
    let ratio = slow.advantage(Metric::Rate).unwrap().median;
    assert!((1.9..2.1).contains(&ratio), "{ratio}");

    let lost: Vec<(&str, Metric)> = losses(&summaries).iter().map(|loss| (loss.rival, loss.metric)).collect();
    assert_eq!(lost.len(), 3, "{lost:?}");
    assert!(lost.iter().all(|(rival, metric)| *rival == "fast" && *metric != Metric::Memory));
    let text = terminal(&results, &summaries);
    assert!(text.contains("Where millstream loses") && text.contains("to fast in CPU time"), "{text}");
    let html = check_page(&results);
    assert_eq!(select(&html, "#losses tbody tr").len(), 3);
    let markdown = markdown(&results, &summaries);
    assert!(markdown.contains("| | millstream | slow | fast | same |"), "{markdown}");
}

#[test]
fn four_rounds_decide_nothing() {
    let results = synthetic(&[(OURS, 1.0), ("fast", 0.5)], 4);
    let summaries = Summary::all(&results);
    assert!(losses(&summaries).is_empty());
    assert!(terminal(&results, &summaries).contains("too few rounds to say"));
    assert!(text_of(&check_page(&results)).contains("too few rounds to say"));
}

#[test]
fn a_sweep_recommends_what_is_better_somewhere_and_worse_nowhere() {
    let mut results =
        synthetic(&[(OURS, 1.0), ("gather-us=0", 1.5), ("high-mark-kib=256", 0.6), ("per-core=1", 1.0)], 7);
    results.header.plan.sweep = true;
    let summaries = Summary::all(&results);
    let advice = advice(&summaries);
    let count = |name: &str| advice.iter().find(|a| a.setting == name).map(|a| (a.better.len(), a.worse.len()));
    assert_eq!(count("gather-us=0"), Some((0, 3)));
    assert_eq!(count("high-mark-kib=256"), Some((3, 0)));
    assert_eq!(count("per-core=1"), Some((0, 0)));
    let html = check_page(&results);
    let strong = select(&html, "#advice strong");
    assert_eq!(strong, ["<strong>high-mark-kib=256</strong>"]);
}

#[test]
fn only_what_moves_beyond_its_interval_is_a_change() {
    let before = synthetic(&[(OURS, 1.0), ("stock", 2.0)], 7);
    assert!(changes(&before, &before).ends_with("0 of 8 figures have changed beyond their intervals\n"));
    let text = changes(&before, &synthetic(&[(OURS, 1.02), ("stock", 6.0)], 7));
    assert!(!text.contains(OURS), "{text}");
    assert!(text.contains("stock CPU time") && text.contains("worse by 200") && text.contains("3 of 8"), "{text}");
    let text = changes(&synthetic(&[("stock", 6.0)], 7), &before);
    assert!(text.contains("better by 66"), "{text}");
}
