//! The page of a recorded run, read by an HTML parser; and what runs with known differences say.

mod loads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use scraper::{Html, Selector};

use super::compare::changes;
use super::frontier::{State, frontiers};
use super::metric::Metric;
use super::page::page;
use super::summary::{OURS, Outcome, Summary, advice, recommendation};
use super::text::{markdown, terminal};
use crate::run::{Record, Results, Skipped};
use measuring::statistics::Verdict;

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
        let plots =
            if summary.cell.rests() { &["cost", "memory"][..] } else { &["pareto", "latency", "cost", "memory"] };
        for &plot in plots {
            let series = attributes(&html, &format!("#{id}-{plot} g[data-series]"), "data-series");
            let series: BTreeSet<_> = series.into_iter().collect();
            let has_memory = |name: &&String| {
                plot != "memory" || summary.row(name).is_some_and(|row| row.get(Metric::Memory).is_some())
            };
            assert_eq!(series, names.iter().filter(has_memory).cloned().collect(), "{id}-{plot}");
            let drawn = match plot {
                "pareto" => summary.rows.iter().any(|row| row.get(Metric::P99).is_some()),
                "memory" => summary.rows.iter().any(|row| row.get(Metric::Memory).is_some()),
                _ => true,
            };
            let marks = select(&html, &format!("#{id}-{plot} :is(.m, .bar)"));
            assert_eq!(!marks.is_empty(), drawn, "{id}-{plot}");
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
            pss_kib: Some(10 << 10),
            latency: vec![(nanos as u64, 990), (nanos as u64 * 3, 10)],
            ..Record::default()
        }
    };
    results.rounds =
        (0..rounds).flat_map(|round| costs.iter().map(move |(name, cost)| record(name, *cost, round))).collect();
    results
}

/// The page, the tables of the terminal, and those in Markdown.
fn everywhere(results: &Results) -> [String; 3] {
    let summaries = Summary::all(results);
    let page = text_of(&check_page(results)).split_whitespace().collect::<Vec<_>>().join(" ");
    [page, terminal(results, &summaries), markdown(results, &summaries)]
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

    let lost: Vec<(&str, Metric)> =
        Outcome::of(&results, &summaries).losses.iter().map(|loss| (loss.rival, loss.metric)).collect();
    assert_eq!(lost.len(), 4, "{lost:?}");
    assert!(lost.iter().all(|(rival, metric)| *rival == "fast" && *metric != Metric::Memory));
    let text = terminal(&results, &summaries);
    assert!(text.contains("Where millstream loses") && text.contains("to fast in CPU time"), "{text}");
    let html = check_page(&results);
    assert_eq!(select(&html, "#losses tbody tr").len(), 4);
    let markdown = markdown(&results, &summaries);
    assert!(markdown.contains("| | millstream | slow | fast | same |"), "{markdown}");
}

#[test]
fn four_rounds_decide_nothing() {
    let results = synthetic(&[(OURS, 1.0), ("fast", 0.5)], 4);
    let summaries = Summary::all(&results);
    assert!(Outcome::of(&results, &summaries).losses.is_empty());
    for text in everywhere(&results) {
        assert!(text.contains("Nothing was decided in 1 of 1 cells: fewer than 5 rounds"), "{text}");
        assert!(!text.to_lowercase().contains("nowhere in"), "{text}");
    }
}

#[test]
fn a_cell_in_which_millstream_fails_is_a_loss() {
    let mut results = synthetic(&[(OURS, 1.0), ("stock", 2.0)], 7);
    for text in everywhere(&results) {
        assert!(text.contains("Nowhere in 1 of 1 cells") && !text.contains("failed:"), "{text}");
    }
    // Two cells: in one it has failed, and the other was not counted.
    let cell = results.header.cells[0].name.clone();
    let mut other = results.header.cells[0].clone();
    other.name = "files/broken".to_owned();
    results.header.cells.push(other);
    let skip = |cell: &str, name: &str, reason: &str| {
        let [cell, contender, reason] = [cell, name, reason].map(str::to_owned);
        Skipped { cell, contender, reason }
    };
    results.skipped.push(skip(&cell, OURS, "system calls were not counted: no strace"));
    results.skipped.push(skip("files/broken", OURS, "9 bytes in place of 10"));
    results.skipped.push(skip("files/broken", "nginx", "ended"));
    let of_broken = |name: &str| {
        let mut record = results.rounds[0].clone();
        (record.cell, record.contender) = ("files/broken".to_owned(), name.to_owned());
        record
    };
    let more = [of_broken("stock"), of_broken("nginx")];
    results.rounds.extend(more);
    let summaries = Summary::all(&results);
    let outcome = Outcome::of(&results, &summaries);
    assert_eq!(outcome.failures.len(), 1);
    assert_eq!((outcome.failures[0].cell, &outcome.failures[0].others[..]), ("files/broken", &["stock"][..]));
    assert_eq!((outcome.nowhere(), outcome.undecided()), (None, None));
    for text in [terminal(&results, &summaries), markdown(&results, &summaries)] {
        assert!(
            text.contains("files/broken: millstream failed: 9 bytes in place of 10; did not fail: stock"),
            "{text}"
        );
    }
    let html = check_page(&results);
    let rows = select(&html, "#losses .failures tbody tr");
    assert!(rows.len() == 1 && rows[0].contains("files/broken") && rows[0].contains("9 bytes"), "{rows:?}");
}

#[test]
fn a_round_of_few_responses_has_no_p99() {
    let mut results = synthetic(&[(OURS, 1.0), ("stock", 2.0)], 7);
    for record in results.rounds.iter_mut().filter(|record| record.contender == "stock") {
        record.latency = vec![(20_000, 14), (90_000, 0)];
    }
    let summaries = Summary::all(&results);
    let stock = summaries[0].row("stock").unwrap();
    assert!(stock.get(Metric::P99).is_none() && stock.advantage(Metric::P99).is_none() && stock.rounds.is_empty());
    // 98 responses of all rounds show a p90, and no p99.
    assert!(stock.latencies[1].is_some());
    assert_eq!(stock.latencies[2..5], [None; 3]);
    let text = markdown(&results, &summaries);
    assert!(text.lines().any(|line| line.ends_with("** | - |")), "{text}");
    let html = Html::parse_document(&page(&results, &summaries, &[]));
    assert_eq!(select(&html, "g[data-series=stock] .cloud"), Vec::<String>::new());
}

/// The connections of a cell, and of each server the throughput, and the p99 in milliseconds.
type Load<'a> = (u32, &'a [(&'a str, f64, f64)]);

/// A run of one workload.
fn workload(family: &str, cells: &[Load<'_>], rounds: u32) -> Results {
    let mut results = synthetic(&[], rounds);
    let mut model = results.header.cells.pop().unwrap();
    if let Some(cell) = recorded().header.cells.into_iter().find(|cell| cell.family() == family) {
        model = cell;
    }
    for (connections, servers) in cells {
        let mut cell = model.clone();
        (cell.name, cell.connections) = (format!("{family}/{connections}"), *connections);
        for round in 0..rounds {
            for &(name, rate, p99) in *servers {
                let noise = 1.0 + 0.01 * f64::from(round % 3);
                let done = rate * noise;
                let (nanos, cpu_ns) = ((p99 * noise * 1e6) as u64, 1_000_000_000);
                let (cell, contender) = (cell.name.clone(), name.to_owned());
                let latency = vec![(nanos / 2, 900), (nanos, 100)];
                let record =
                    Record { cell, contender, round, seconds: 1.0, done, cpu_ns, latency, ..Record::default() };
                results.rounds.push(record);
            }
        }
        results.header.cells.push(cell);
    }
    results
}

fn states(results: &Results) -> Vec<(String, String)> {
    let summaries = Summary::all(results);
    let frontiers = frontiers(&summaries);
    let points = frontiers.iter().flat_map(|frontier| &frontier.points);
    let state = |state| match state {
        State::Dominated(by) => by.to_owned(),
        State::Undominated => "free".to_owned(),
        State::Open => "open".to_owned(),
    };
    points.map(|point| (point.cell.name.clone(), state(point.state))).collect()
}

#[test]
fn points_that_nothing_dominates_are_listed() {
    let cells: [Load<'_>; 4] = [
        // By the same cell; by another one; by none, for its p99; by none, for it is the same.
        (1, &[(OURS, 2000.0, 0.5), ("stock", 1000.0, 1.0)]),
        (10, &[(OURS, 5000.0, 2.0), ("stock", 3000.0, 1.9)]),
        (100, &[(OURS, 9000.0, 1.8), ("stock", 8000.0, 0.4)]),
        (1000, &[(OURS, 9500.0, 90.0), ("stock", 9500.0, 90.0)]),
    ];
    let results = workload("tokens", &cells[..3], 7);
    let text = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    let expected = [text("tokens/1", "tokens/1"), text("tokens/10", "tokens/100"), text("tokens/100", "free")];
    assert_eq!(states(&results), expected);
    for text in everywhere(&results) {
        assert!(text.contains("tokens: 2 of 3 points of stock are dominated, 1 not dominated"), "{text}");
    }
    let summaries = Summary::all(&results);
    for text in [terminal(&results, &summaries), markdown(&results, &summaries)] {
        assert!(
            text.contains("tokens/100 stock: not dominated; 8080 requests a second, p99 0.4 ms; advantage"),
            "{text}"
        );
    }
    let html = check_page(&results);
    assert_eq!(select(&html, "#frontiers tbody tr").len(), 3);
    assert_eq!(select(&html, "#frontiers .bad").iter().filter(|text| text.contains("not dominated")).count(), 1);
    assert!(!select(&html, "#tokens-frontier .m").is_empty());
    assert_eq!(states(&workload("tokens", &cells[3..], 7)), [text("tokens/1000", "free")]);
    // Another family is no workload, and few rounds decide nothing.
    assert_eq!(states(&workload("uploads", &cells, 7)), []);
    assert_eq!(states(&workload("tokens", &cells[..1], 4)), [text("tokens/1", "open")]);
    // Another number of readers of events is another task.
    let states = states(&workload("events", &cells[..3], 7));
    assert_eq!(states, [text("events/1", "events/1"), text("events/10", "free"), text("events/100", "free")]);
    let fewer: [Load<'_>; 2] = [(1, &[(OURS, 9000.0, 0.1)]), (10, &[("stock", 1000.0, 1.0)])];
    assert_eq!(self::states(&workload("events", &fewer, 7)), [text("events/10", "free")]);
    assert_eq!(self::states(&workload("tokens", &fewer, 7)), [text("tokens/10", "tokens/1")]);
}

#[test]
fn a_sweep_recommends_what_is_better_somewhere_and_worse_nowhere() {
    let mut results =
        synthetic(&[(OURS, 1.0), ("gather-us=0", 1.5), ("high-mark-kib=256", 0.6), ("per-core=1", 1.0)], 7);
    results.header.plan.sweep = true;
    let summaries = Summary::all(&results);
    let advice = advice(&results, &summaries);
    let count = |name: &str| advice.iter().find(|a| a.setting == name).map(|a| (a.better.len(), a.worse.len()));
    assert_eq!(count("gather-us=0"), Some((0, 3)));
    assert_eq!(count("high-mark-kib=256"), Some((3, 0)));
    assert_eq!(count("per-core=1"), Some((0, 0)));
    let html = check_page(&results);
    let strong = select(&html, "#advice strong");
    assert_eq!(strong, ["<strong>high-mark-kib=256</strong>"]);
    assert!(everywhere(&results).iter().all(|text| text.contains("intervals of the ratios exclude 1: ")));

    // A setting that fails in a cell is not recommended.
    let [cell, contender, reason] = [&results.header.cells[0].name, "high-mark-kib=256", "ended"].map(str::to_owned);
    results.skipped.push(Skipped { cell, contender, reason });
    assert!(everywhere(&results).iter().all(|text| text.contains("Keep the defaults: no setting")));

    // Nor is one by too few rounds, or by less than 2 %.
    let mut results = synthetic(&[(OURS, 1.0), ("gather-us=0", 0.5)], 4);
    results.header.plan.sweep = true;
    assert!(everywhere(&results).iter().all(|text| text.contains("Keep the defaults: there were too few rounds")));
    let mut results = synthetic(&[(OURS, 1.0), ("millstreax", 0.985)], 7);
    results.header.plan.sweep = true;
    let summaries = Summary::all(&results);
    assert!(summaries[0].row("millstreax").unwrap().advantage(Metric::Cost).unwrap().high < 1.0);
    assert_eq!(recommendation(&super::summary::advice(&results, &summaries)).1, Vec::<&str>::new());
}

#[test]
fn only_what_moves_beyond_its_interval_is_a_change() {
    let before = synthetic(&[(OURS, 1.0), ("stock", 2.0)], 7);
    assert!(changes(&before, &before).starts_with("0 of 10 figures have changed"));
    let four = [1.0, 6.0].map(|cost| synthetic(&[("stock", cost)], 4));
    assert!(changes(&four[0], &four[1]).starts_with("0 of 5"), "four rounds decide nothing");
    let text = changes(&before, &synthetic(&[(OURS, 1.02), ("stock", 6.0)], 7));
    assert!(!text.contains(OURS), "{text}");
    assert!(text.contains("stock CPU time") && text.contains("worse by 200") && text.contains("4 of 10"), "{text}");
    let text = changes(&synthetic(&[("stock", 6.0)], 7), &before);
    assert!(text.contains("better by 66"), "{text}");
}
