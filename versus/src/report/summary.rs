//! What the rounds of a run say: estimates for each server, ratios to millstream, and who wins.

use super::metric::Metric;
use super::svg::number;
use crate::run::{Calls, Cell, KEEPS_UP, Record, Results, Skipped, Unit};
use measuring::statistics::{ENOUGH, Estimate, Verdict, merge, quantile_of_counts};

/// The server that others are compared with.
pub(crate) const OURS: &str = "millstream";

/// Percentiles that are shown.
pub(crate) const SHARES: [(f64, &str); 6] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (1.0, "max")];

/// One server in one cell.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    /// In the order of [`Metric::ALL`].
    metrics: [Option<Estimate>; Metric::COUNT],
    /// How many times better millstream is, by ratios of the same round. `None` for millstream.
    advantages: Option<[Option<Estimate>; Metric::COUNT]>,
    /// Milliseconds in the order of [`SHARES`], of all rounds together.
    pub(crate) latencies: [Option<f64>; 6],
    /// Throughput and p99 of each round that has a p99.
    pub(crate) rounds: Vec<(f64, f64)>,
    pub(crate) calls: Option<&'a Calls>,
    /// Share of its time that the load was on a CPU; near 1 for each of its CPUs it limits the throughput.
    pub(crate) load: f64,
    /// Share of what was offered that the server has completed, in all rounds together; `None` in a closed loop.
    pub(crate) completed: Option<f64>,
}

impl Row<'_> {
    pub(crate) fn get(&self, metric: Metric) -> Option<Estimate> {
        self.metrics[metric as usize]
    }

    pub(crate) fn advantage(&self, metric: Metric) -> Option<Estimate> {
        self.advantages?[metric as usize]
    }

    /// Returns the median of requests a second, or of deliveries for each second of CPU time.
    pub(crate) fn throughput(&self, unit: Unit) -> Option<f64> {
        let metric = Metric::throughput(unit);
        let median = self.get(metric)?.median;
        Some(if metric == Metric::Cost { 1e6 / median } else { median })
    }

    /// Returns whether the server has completed less than was offered.
    pub(crate) fn falls_behind(&self) -> bool {
        self.completed.is_some_and(|share| share < KEEPS_UP)
    }

    /// Returns whether the rounds of this server and millstream are enough for a verdict.
    fn is_decided(&self) -> bool {
        self.advantage(Metric::Cost).is_some_and(|ratio| ratio.count >= ENOUGH)
    }
}

#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) rows: Vec<Row<'a>>,
}

impl<'a> Summary<'a> {
    pub(crate) fn row(&self, name: &str) -> Option<&Row<'a>> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Returns the cells that have rounds.
    pub(crate) fn all(results: &'a Results) -> Vec<Self> {
        let of = |cell| Self::of(results, cell);
        results.header.cells.iter().map(of).filter(|summary| !summary.rows.is_empty()).collect()
    }

    fn of(results: &'a Results, cell: &'a Cell) -> Self {
        let records: Vec<&Record> = results.rounds.iter().filter(|record| record.cell == cell.name).collect();
        let ours: Vec<&Record> = records.iter().copied().filter(|record| record.contender == OURS).collect();
        let mut names: Vec<&str> = Vec::new();
        for record in &records {
            if !names.contains(&record.contender.as_str()) {
                names.push(&record.contender);
            }
        }
        let row = |name: &'a str| {
            let own: Vec<&Record> = records.iter().copied().filter(|record| record.contender == name).collect();
            let advantage = |metric: Metric| {
                let pairs =
                    own.iter().filter_map(|their| Some((their, ours.iter().find(|our| our.round == their.round)?)));
                Estimate::of(pairs.map(|(their, our)| metric.of(cell, their) / metric.of(cell, our)))
                    .map(|r| metric.advantage(r))
            };
            let pooled = merge(own.iter().map(|record| &record.latency[..]));
            let latency = |(share, _)| match share {
                1.0 => pooled.last().map(|(value, _)| *value as f64 / 1e6),
                _ => quantile_of_counts(&pooled, share).map(|nanos| nanos as f64 / 1e6),
            };
            let point = |record: &&Record| match cell.unit() {
                Unit::Request => (record.rate(), Metric::P99.of(cell, record)),
                Unit::Delivery => (1e6 / record.cost(), Metric::P99.of(cell, record)),
            };
            let offered: Option<f64> = own.iter().map(|record| record.offered).sum();
            let done: f64 = own.iter().map(|record| record.done).sum();
            let load = own.iter().map(|record| record.load_cpu_ns as f64 / 1e9 / record.seconds);
            Row {
                name,
                metrics: Metric::ALL.map(|metric| Estimate::of(own.iter().map(|record| metric.of(cell, record)))),
                advantages: (name != OURS).then(|| Metric::ALL.map(advantage)),
                latencies: SHARES.map(latency),
                rounds: own.iter().map(point).filter(|(_, p99)| p99.is_finite()).collect(),
                calls: results.calls_of(&cell.name, name),
                load: Estimate::of(load).map_or(0.0, |load| load.median),
                completed: offered.filter(|offered| *offered > 0.0).map(|offered| done / offered),
            }
        };
        Self { cell, rows: names.into_iter().map(row).collect() }
    }
}

/// Returns a sentence for each server that has not kept up with what was offered.
pub(crate) fn behind(summaries: &[Summary<'_>]) -> Vec<String> {
    let sentence = |cell: &Cell, row: &Row<'_>| {
        let (share, offered) = (row.completed?, cell.offered()?);
        Some(format!(
            "{}: {} did not keep up: it completed {} % of {} {} a second. Its latencies are those of an overload.",
            cell.name,
            row.name,
            number(share * 100.0),
            number(offered),
            cell.unit().many()
        ))
    };
    let of = |summary: &Summary<'_>| {
        let rows = summary.rows.iter().filter(|row| row.falls_behind());
        rows.filter_map(|row| sentence(summary.cell, row)).collect::<Vec<_>>()
    };
    summaries.iter().flat_map(of).collect()
}

/// A comparison that millstream loses, by the rule of all verdicts.
#[derive(Debug)]
pub(crate) struct Loss<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) rival: &'a str,
    pub(crate) metric: Metric,
    /// How many times better the rival is.
    pub(crate) by: Estimate,
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
}

/// A cell in which millstream itself has failed.
#[derive(Debug)]
pub(crate) struct Failure<'a> {
    pub(crate) cell: &'a str,
    pub(crate) reason: &'a str,
    /// Servers that have not.
    pub(crate) others: Vec<&'a str>,
}

/// Where millstream loses.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    /// What millstream is called: its defaults in a sweep.
    pub(crate) ours: &'static str,
    pub(crate) failures: Vec<Failure<'a>>,
    /// The worst first.
    pub(crate) losses: Vec<Loss<'a>>,
    /// Cells that no comparison decides, of all.
    open: usize,
    cells: usize,
}

impl<'a> Outcome<'a> {
    pub(crate) fn of(results: &'a Results, summaries: &'a [Summary<'a>]) -> Self {
        let failures = failures(results);
        let cells = &results.header.cells;
        let is_open = |cell: &&Cell| {
            let summary = summaries.iter().find(|summary| summary.cell.name == cell.name);
            let decided = summary.is_some_and(|summary| summary.rows.iter().any(Row::is_decided));
            !decided && failures.iter().all(|failure| failure.cell != cell.name)
        };
        let open = cells.iter().filter(is_open).count();
        let ours = if results.header.plan.sweep { "the defaults" } else { OURS };
        Self { ours, failures, losses: losses(summaries), open, cells: cells.len() }
    }

    pub(crate) fn loses(&self) -> String {
        format!("{} {}", self.ours, if self.ours == OURS { "loses" } else { "lose" })
    }

    /// Says that there are no losses, if something was decided.
    pub(crate) fn nowhere(&self) -> Option<String> {
        let none = self.failures.is_empty() && self.losses.is_empty() && self.open < self.cells;
        none.then(|| {
            let decided = self.cells - self.open;
            format!(
                "Nowhere in {decided} of {} cells: no ratio is 2 % or more to its disadvantage with an interval that excludes 1.",
                self.cells
            )
        })
    }

    /// Says in how many cells nothing was decided.
    pub(crate) fn undecided(&self) -> Option<String> {
        (self.open > 0).then(|| {
            let Self { ours, open, cells, .. } = self;
            format!("Nothing was decided in {open} of {cells} cells: fewer than {ENOUGH} rounds of {ours} and another.")
        })
    }
}

fn failures(results: &Results) -> Vec<Failure<'_>> {
    let failed = results.skipped.iter().filter(|skipped| skipped.contender == OURS && skipped.is_failure());
    failed
        .map(|Skipped { cell, reason, .. }| {
            let mut others: Vec<&str> = Vec::new();
            for record in results.rounds.iter().filter(|record| record.cell == *cell && record.contender != OURS) {
                let name = record.contender.as_str();
                let failed = |s: &Skipped| s.cell == *cell && s.contender == name && s.is_failure();
                if !others.contains(&name) && !results.skipped.iter().any(failed) {
                    others.push(name);
                }
            }
            Failure { cell, reason, others }
        })
        .collect()
}

/// Returns all losses, the worst first.
fn losses<'a>(summaries: &'a [Summary<'a>]) -> Vec<Loss<'a>> {
    let mut losses = Vec::new();
    for Summary { cell, rows } in summaries {
        let Some(our) = rows.iter().find(|row| row.name == OURS) else { continue };
        for row in rows {
            for metric in Metric::ALL {
                if let Some(advantage) = row.advantage(metric).filter(|a| a.verdict() == Verdict::Below)
                    && let (Some(ours), Some(theirs)) = (our.get(metric), row.get(metric))
                {
                    let by = advantage.inverse();
                    losses.push(Loss { cell, rival: row.name, metric, by, ours: ours.median, theirs: theirs.median });
                }
            }
        }
    }
    losses.sort_by(|a, b| b.by.median.total_cmp(&a.by.median));
    losses
}

/// What a sweep says of a setting.
#[derive(Debug)]
pub(crate) struct Advice<'a> {
    pub(crate) setting: &'a str,
    /// Cells and metrics where it is better than the defaults, and where it is worse, by how many times.
    pub(crate) better: Vec<(&'a str, Metric, f64)>,
    pub(crate) worse: Vec<(&'a str, Metric, f64)>,
    /// Cells in which it has failed.
    pub(crate) failed: Vec<&'a str>,
    /// Cells with too few rounds.
    pub(crate) open: Vec<&'a str>,
}

impl Advice<'_> {
    /// Returns whether the setting is better somewhere, and known to be worse nowhere.
    fn is_clear(&self) -> bool {
        !self.better.is_empty() && self.worse.is_empty() && self.failed.is_empty() && self.open.is_empty()
    }
}

/// Returns what each setting changes, by the rule of all verdicts. Memory is left out: it is shown, but decides nothing.
pub(crate) fn advice<'a>(results: &'a Results, summaries: &'a [Summary<'a>]) -> Vec<Advice<'a>> {
    let mut all: Vec<Advice<'a>> = Vec::new();
    for Summary { cell, rows } in summaries {
        for row in rows.iter().filter(|row| row.name != OURS) {
            let advice = entry(&mut all, row.name);
            if !row.is_decided() {
                advice.open.push(&cell.name);
            }
            for metric in [Metric::Cost, Metric::Rate, Metric::P99] {
                let Some(advantage) = row.advantage(metric) else { continue };
                match advantage.verdict() {
                    Verdict::Below => advice.better.push((&cell.name, metric, 1.0 / advantage.median)),
                    Verdict::Above => advice.worse.push((&cell.name, metric, advantage.median)),
                    Verdict::Open => {}
                }
            }
        }
    }
    for skipped in results.skipped.iter().filter(|skipped| skipped.contender != OURS && skipped.is_failure()) {
        entry(&mut all, &skipped.contender).failed.push(&skipped.cell);
    }
    all
}

fn entry<'l, 'a>(all: &'l mut Vec<Advice<'a>>, setting: &'a str) -> &'l mut Advice<'a> {
    let at = all.iter().position(|advice| advice.setting == setting).unwrap_or_else(|| {
        let (better, worse, failed, open) = Default::default();
        all.push(Advice { setting, better, worse, failed, open });
        all.len() - 1
    });
    &mut all[at]
}

/// Says which settings to take, and names them.
pub(crate) fn recommendation<'a>(advice: &[Advice<'a>]) -> (&'static str, Vec<&'a str>) {
    let clear: Vec<&str> = advice.iter().filter(|advice| advice.is_clear()).map(|advice| advice.setting).collect();
    let text = match advice {
        _ if !clear.is_empty() => {
            "Better than the defaults somewhere by 2 % or more, worse nowhere, and intervals of the ratios exclude 1: "
        }
        advice if advice.iter().all(|advice| !advice.open.is_empty()) => {
            "Keep the defaults: there were too few rounds to recommend another setting."
        }
        _ => {
            "Keep the defaults: no setting is better in one workload without being worse, failing or undecided in another."
        }
    };
    (text, clear)
}
