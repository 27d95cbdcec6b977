//! The measured values, as a table.

use std::fmt;

use measuring::statistics::quantile;

use crate::options::Options;
use crate::ways::Way;

/// The figures of one contender, round by round.
#[derive(Debug)]
pub(crate) struct Series<const N: usize>(Vec<[f64; N]>);

impl<const N: usize> Default for Series<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<const N: usize> Series<N> {
    pub(crate) fn push(&mut self, round: [f64; N]) {
        self.0.push(round);
    }

    fn quantiles(&self, share: f64) -> [f64; N] {
        std::array::from_fn(|n| quantile(&self.0.iter().map(|round| round[n]).collect::<Vec<_>>(), share))
    }

    pub(crate) fn medians(&self) -> [f64; N] {
        self.quantiles(0.5)
    }

    pub(crate) fn least(&self) -> [f64; N] {
        self.quantiles(0.0)
    }
}

/// One contender in one job.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) way: &'static Way,
    /// CPU time, the median and the least, in the section's unit.
    pub(crate) cpu: f64,
    pub(crate) least: f64,
    pub(crate) notes: Vec<String>,
}

/// All contenders in one job.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    /// The headings of the notes of the rows.
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Vec<Row>,
}

impl Section {
    /// The least median of some of the contenders.
    pub(crate) fn best(&self, which: impl Fn(&Way) -> bool) -> f64 {
        self.rows.iter().filter(|row| which(row.way)).map(|row| row.cpu).fold(f64::INFINITY, f64::min)
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{:<34}{:>16}{:>9}{:>8}", self.title, format!("CPU {}", self.unit), "least", "ratio")?;
        self.columns.iter().try_for_each(|column| write!(f, "{column:>15}"))?;
        let base = self.rows.first().map_or(1.0, |row| row.cpu);
        for Row { way, cpu, least, notes } in &self.rows {
            write!(f, "\n  {:<32}{cpu:>16.2}{least:>9.2}{:>8.2}", way.name, cpu / base)?;
            notes.iter().try_for_each(|note| write!(f, "{note:>15}"))?;
        }
        Ok(())
    }
}

/// A ratio that is asked for.
#[derive(Debug)]
pub(crate) struct Bar {
    title: String,
    against: &'static str,
    ratio: f64,
    most: f64,
}

impl Bar {
    pub(crate) fn new(title: &str, against: &'static str, ratio: f64, most: f64) -> Self {
        Self { title: title.to_owned(), against, ratio, most }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, against, ratio, most } = self;
        let verdict = if ratio <= most { "met" } else { "MISSED" };
        write!(f, "{verdict:<7}{title}: {ratio:.2} x {against}, at most {most:.2}")
    }
}

pub(crate) fn head(options: &Options, cpus: Option<[usize; 2]>) -> String {
    let uname = rustix::system::uname();
    let pinned = match cpus {
        Some([server, load]) => format!("servers on CPU {server}, load on CPU {load}"),
        None => "one CPU for servers and load, which blurs everything".to_owned(),
    };
    let quick = if options.quick { "\n(quick: it works; the figures mean little)" } else { "" };
    let kernel = uname.release().to_string_lossy();
    format!(
        "\nLinux {kernel}; {pinned}; medians of {} rounds, by turns; ratios to the first row{quick}",
        options.rounds
    )
}
