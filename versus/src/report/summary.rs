//! What the rounds of a run say: estimates for each server, ratios to millstream, and who wins.

use super::statistics::{Estimate, Verdict, merge, quantile};
use crate::run::{Calls, Cell, Record, Results, Unit};

/// The server that others are compared with.
pub(crate) const OURS: &str = "millstream";

/// Percentiles that are shown.
pub(crate) const SHARES: [(f64, &str); 6] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (1.0, "max")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Cost,
    Rate,
    P99,
    Memory,
}

impl Metric {
    pub(crate) const ALL: [Self; 4] = [Self::Cost, Self::Rate, Self::P99, Self::Memory];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cost => "CPU time",
            Self::Rate => "throughput",
            Self::P99 => "p99",
            Self::Memory => "memory",
        }
    }

    pub(crate) fn unit(self, unit: Unit) -> String {
        match self {
            Self::Cost => format!("µs for each {}", unit.one()),
            Self::Rate => format!("{} a second", unit.many()),
            Self::P99 => "ms".to_owned(),
            Self::Memory => "MiB".to_owned(),
        }
    }

    fn of(self, record: &Record) -> f64 {
        match self {
            Self::Cost => record.cost(),
            Self::Rate => record.rate(),
            Self::P99 => p99(record),
            Self::Memory => record.peak_kib as f64 / 1024.0,
        }
    }
}

/// Returns the p99 of a round in milliseconds: its longest latency, if it has few.
fn p99(record: &Record) -> f64 {
    let found = quantile(&record.latency, 0.99).or(record.latency.last().map(|(value, _)| *value));
    found.map_or(f64::NAN, |nanos| nanos as f64 / 1e6)
}

/// One server in one cell.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    /// In the order of [`Metric::ALL`].
    metrics: [Option<Estimate>; 4],
    /// How many times better millstream is, by ratios of the same round. `None` for millstream.
    advantages: Option<[Option<Estimate>; 4]>,
    /// Milliseconds in the order of [`SHARES`], of all rounds together.
    pub(crate) latencies: [Option<f64>; 6],
    /// Throughput and p99 of each round.
    pub(crate) rounds: Vec<(f64, f64)>,
    pub(crate) calls: Option<&'a Calls>,
    /// Share of its time that the load was on a CPU; near 1 for each of its CPUs it limits the throughput.
    pub(crate) load: f64,
}

impl Row<'_> {
    pub(crate) fn get(&self, metric: Metric) -> Option<Estimate> {
        self.metrics[metric as usize]
    }

    pub(crate) fn advantage(&self, metric: Metric) -> Option<Estimate> {
        self.advantages?[metric as usize]
    }
}

#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) rows: Vec<Row<'a>>,
}

impl<'a> Summary<'a> {
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
                let ratio = Estimate::of(pairs.map(|(their, our)| metric.of(their) / metric.of(our)))?;
                Some(if metric == Metric::Rate { ratio.inverse() } else { ratio })
            };
            let pooled = merge(own.iter().map(|record| &record.latency[..]));
            let latency = |(share, _)| match share {
                1.0 => pooled.last().map(|(value, _)| *value as f64 / 1e6),
                _ => quantile(&pooled, share).map(|nanos| nanos as f64 / 1e6),
            };
            let load = own.iter().map(|record| record.load_cpu_ns as f64 / 1e9 / record.seconds);
            Row {
                name,
                metrics: Metric::ALL.map(|metric| Estimate::of(own.iter().map(|record| metric.of(record)))),
                advantages: (name != OURS).then(|| Metric::ALL.map(advantage)),
                latencies: SHARES.map(latency),
                rounds: own.iter().map(|record| (record.rate(), p99(record))).collect(),
                calls: results.calls_of(&cell.name, name),
                load: Estimate::of(load).map_or(0.0, |load| load.median),
            }
        };
        Self { cell, rows: names.into_iter().map(row).collect() }
    }
}

/// A comparison that millstream loses beyond doubt.
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

/// Returns all losses, the worst first.
pub(crate) fn losses<'a>(summaries: &'a [Summary<'a>]) -> Vec<Loss<'a>> {
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

/// What a sweep says of a setting in a cell where it changes something.
#[derive(Debug)]
pub(crate) struct Advice<'a> {
    pub(crate) setting: &'a str,
    /// Cells and metrics where it is better than the defaults, and where it is worse, by how many times.
    pub(crate) better: Vec<(&'a str, Metric, f64)>,
    pub(crate) worse: Vec<(&'a str, Metric, f64)>,
}

/// Returns what each setting changes beyond doubt. Memory is left out: it is shown, but decides nothing.
pub(crate) fn advice<'a>(summaries: &'a [Summary<'a>]) -> Vec<Advice<'a>> {
    let mut all: Vec<Advice<'a>> = Vec::new();
    for Summary { cell, rows } in summaries {
        for row in rows.iter().filter(|row| row.name != OURS) {
            let at = all.iter().position(|advice| advice.setting == row.name).unwrap_or_else(|| {
                all.push(Advice { setting: row.name, better: Vec::new(), worse: Vec::new() });
                all.len() - 1
            });
            for metric in [Metric::Cost, Metric::Rate, Metric::P99] {
                let Some(advantage) = row.advantage(metric) else { continue };
                match advantage.verdict() {
                    Verdict::Below => all[at].better.push((&cell.name, metric, 1.0 / advantage.median)),
                    Verdict::Above => all[at].worse.push((&cell.name, metric, advantage.median)),
                    Verdict::Open => {}
                }
            }
        }
    }
    all
}
