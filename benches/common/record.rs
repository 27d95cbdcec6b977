//! Results: a JSON line for each case, kept in the target directory, and their table.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use measuring::statistics::{median, spread};
use serde_json::{Value, json};

use super::contest::{By, Case, Measured};
use super::options::options;

/// Smaller differences between ratios are noise even on the best machines.
const EVEN: f64 = 0.03;

/// Figures of a contender, and the ratio of our first contender to them.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub value: f64,
    /// Wall time if the value is CPU time, and vice versa.
    pub other: Option<f64>,
    /// Our time divided by this one: the median of the rounds, and half the interquartile range relative to it.
    pub ratio: f64,
    pub spread: f64,
    pub other_ratio: Option<f64>,
    pub note: String,
}

impl Row {
    fn is_ours(&self) -> bool {
        self.name.starts_with("millstream")
    }

    fn is_floor(&self) -> bool {
        self.name.starts_with("floor")
    }

    fn to_json(&self) -> Value {
        let Self { name, value, other, ratio, spread, other_ratio, note } = self;
        json!({ "name": name, "value": value, "other": other, "ratio": ratio, "spread": spread,
            "other_ratio": other_ratio, "note": note })
    }

    fn from_json(row: &Value) -> Option<Self> {
        let number = |name: &str| row[name].as_f64();
        Some(Self {
            name: row["name"].as_str()?.to_owned(),
            value: number("value")?,
            other: number("other"),
            ratio: number("ratio")?,
            spread: number("spread")?,
            other_ratio: number("other_ratio"),
            note: row["note"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

#[derive(Clone, Debug)]
pub struct Record {
    /// Identifies the programs started by one `cargo bench`.
    pub run: String,
    /// Seconds since 1970-01-01.
    pub at: u64,
    pub quick: bool,
    pub program: String,
    pub title: String,
    pub unit: String,
    pub other: String,
    /// Contenders, ours first.
    pub rows: Vec<Row>,
    /// Goals, met and missed.
    pub goals: Vec<String>,
}

/// Returns the ratio of two series, round by round: the median, and its spread.
fn ratio(ours: &[f64], theirs: &[f64]) -> (f64, f64) {
    // A time too short for the clock must not divide by zero.
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours.max(1e-9) / theirs.max(1e-9)).collect();
    (median(&ratios), spread(&ratios))
}

impl Record {
    pub fn new(program: &str, case: &Case<'_>, measured: Vec<Measured>) -> Self {
        let mut measured = measured;
        let first = measured.iter().position(|measured| measured.name.starts_with("millstream")).unwrap_or(0);
        measured[..=first].rotate_right(1);
        let ours = measured[0].clone();
        let of = |measured: &Measured, by| if by == By::Cpu { measured.cpu.clone() } else { measured.wall.clone() };
        let other = if case.by == By::Cpu { By::Wall } else { By::Cpu };
        let rows = measured.iter().map(|theirs| {
            let (ratio_by, spread) = ratio(&of(&ours, case.by), &of(theirs, case.by));
            let others = of(theirs, other);
            let has_other = !others.is_empty();
            Row {
                name: theirs.name.clone(),
                value: median(&of(theirs, case.by)),
                other: has_other.then(|| median(&others)),
                ratio: ratio_by,
                spread,
                other_ratio: has_other.then(|| ratio(&of(&ours, other), &others).0),
                note: theirs.note.clone(),
            }
        });
        let rows = rows.collect();
        let goals = case.goals.iter().filter_map(|goal| {
            let theirs = measured.iter().find(|theirs| theirs.name == goal.against)?;
            let (ratio, _) = ratio(&of(&ours, goal.by), &of(theirs, goal.by));
            let verdict = if ratio <= goal.most { "met" } else { "MISSED" };
            let time = if goal.by == case.by { case.unit } else { case.other };
            Some(format!("{verdict:<7}{ratio:.2} of {}, {time}, at most {:.2}", goal.against, goal.most))
        });
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (program, title) = (program.to_owned(), case.title.to_owned());
        let (unit, other) = (case.unit.to_owned(), case.other.to_owned());
        let goals = goals.collect();
        Self { run: this_run(), at, quick: options().quick, program, title, unit, other, rows, goals }
    }

    /// Returns ours, the best rival, and the lowest floor.
    pub fn sides(&self) -> (&Row, Option<&Row>, Option<&Row>) {
        let least = |rows: Vec<&'_ Row>| rows.iter().map(|row| row.value).fold(f64::INFINITY, f64::min);
        let best = |is: &dyn Fn(&&Row) -> bool| {
            let least = least(self.rows.iter().filter(is).collect());
            self.rows.iter().filter(is).find(|row| row.value <= least)
        };
        (&self.rows[0], best(&|row| !row.is_ours() && !row.is_floor()), best(&|row| row.is_floor()))
    }

    fn verdict(rival: &Row) -> &'static str {
        match rival.ratio {
            ratio if ratio * (1.0 + rival.spread) < 1.0 && ratio < 1.0 - EVEN => "better",
            ratio if ratio * (1.0 - rival.spread) > 1.0 && ratio > 1.0 + EVEN => "worse",
            _ => "even",
        }
    }

    pub fn details(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let Row { name, value, other, ratio, spread, other_ratio, note } = row;
            write!(text, "  {name:<34} {:>10}", figure(*value)).unwrap();
            match (row.name == self.rows[0].name, other) {
                (true, _) => write!(text, " {:14}", "").unwrap(),
                _ => write!(text, " {:>7} {:>6}", short(*ratio), percent(*spread)).unwrap(),
            }
            if let Some((other, ratio)) = other.zip(*other_ratio) {
                write!(text, "   {} {:>10} {:>6}", self.other, figure(other), short(ratio)).unwrap();
            }
            writeln!(text, "   {note}").unwrap();
        }
        self.goals.iter().for_each(|goal| writeln!(text, "  goal {goal}").unwrap());
        text
    }

    pub fn to_json(&self) -> Value {
        let Self { run, at, quick, program, title, unit, other, rows, goals } = self;
        let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
        json!({ "run": run, "at": at, "quick": quick, "program": program, "title": title, "unit": unit,
            "other": other, "rows": rows, "goals": goals })
    }

    pub fn from_json(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| Some(value[name].as_str()?.to_owned());
        let rows: Vec<Row> = value["rows"].as_array()?.iter().filter_map(Row::from_json).collect();
        let goals = value["goals"].as_array()?.iter().filter_map(|goal| Some(goal.as_str()?.to_owned())).collect();
        let (run, at, quick) = (text("run")?, value["at"].as_u64()?, value["quick"].as_bool()?);
        let (program, title, unit, other) = (text("program")?, text("title")?, text("unit")?, text("other")?);
        (!rows.is_empty()).then_some(Self { run, at, quick, program, title, unit, other, rows, goals })
    }
}

/// Returns an id of the parent process, `cargo bench`: its pid and start time.
pub fn this_run() -> String {
    let parent = std::os::unix::process::parent_id();
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
    let start = stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(19)).unwrap_or("0");
    format!("{parent}-{start}")
}

/// Returns the file of a program. Cargo puts programs into `<target>/<profile>/deps`.
fn file(program: &str) -> PathBuf {
    let program_path = std::env::current_exe().unwrap();
    let target = program_path.ancestors().nth(3).expect("cargo runs programs from its target directory");
    target.join("millstream-bench").join(format!("{program}.jsonl"))
}

/// Reads the results of a program, of this run and earlier ones.
pub fn read(program: &str) -> Vec<Record> {
    fs::read_to_string(file(program)).unwrap_or_default().lines().filter_map(Record::from_json).collect()
}

pub fn write(program: &str, records: &[Record]) {
    let file = file(program);
    fs::create_dir_all(file.parent().expect("the file has a directory")).unwrap();
    let lines: String = records.iter().map(|record| format!("{}\n", record.to_json())).collect();
    fs::write(file, lines).unwrap();
}

/// Formats a ratio with two digits, never as zero.
fn short(ratio: f64) -> String {
    if ratio < 0.005 { "<0.01".to_owned() } else { format!("{ratio:.2}") }
}

fn percent(part: f64) -> String {
    format!("±{:.0}%", part * 100.0)
}

/// Formats a value with at least three digits.
fn figure(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.4}"),
    }
}

fn ago(at: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let minutes = (now.saturating_sub(Duration::from_secs(at))).as_secs() / 60;
    match minutes {
        0..60 => format!("{minutes} min ago"),
        60..2880 => format!("{} h ago", minutes / 60),
        _ => format!("{} days ago", minutes / 1440),
    }
}

/// Formats the table: ours beside the best rival of each case.
pub fn table(records: &[Record]) -> String {
    let width = |name: &dyn Fn(&Record) -> usize| records.iter().map(name).max().unwrap_or(0).max(4);
    let case = width(&|record| record.program.len() + 1 + record.title.chars().count());
    let unit = width(&|record| record.unit.chars().count());
    let mut text = format!(
        "{:<case$}  {:<unit$} {:>9} {:>9} {:>7} {:>6} {:<7} {:>6} {:>6}  {}\n",
        "case", "unit", "ours", "rival", "ratio", "spread", "", "other", "floor", "rival's name"
    );
    let this = this_run();
    let mut seen = [("better", 0), ("even", 0), ("worse", 0)];
    for record in records {
        let (ours, rival, floor) = record.sides();
        let name = format!("{}/{}", record.program, record.title);
        write!(text, "{name:<case$}  {:<unit$} {:>9} ", record.unit, figure(ours.value)).unwrap();
        let floor = floor.map(|floor| short(floor.ratio)).unwrap_or_default();
        if let Some(rival) = rival {
            let verdict = Record::verdict(rival);
            seen.iter_mut().filter(|(name, _)| *name == verdict).for_each(|(_, count)| *count += 1);
            let other = rival.other_ratio.map(short).unwrap_or_default();
            let (theirs, ratio, spread) = (figure(rival.value), short(rival.ratio), percent(rival.spread));
            write!(text, "{theirs:>9} {ratio:>7} {spread:>6} {verdict:<7} {other:>6} {floor:>6}  {}", rival.name)
                .unwrap();
        } else {
            write!(text, "{:40}{floor:>6}", "").unwrap();
        }
        if record.run != this {
            write!(text, "  (older run, {})", ago(record.at)).unwrap();
        }
        text.push('\n');
    }
    let [better, even, worse] = seen.map(|(name, count)| format!("{count} {name}"));
    writeln!(text, "\n{better}, {even}, {worse}, of {} cases.", records.len()).unwrap();
    text += "ratio: ours by the best rival's, less is better; spread: half of the distance between its quartiles.\n\
        other: the ratio of wall time beside CPU time (of lateness for grpc), or of CPU time beside wall time.\n\
        floor: the ratio to less work than a rival has: it blocks the thread, has everything at hand, or leaves work out.\n";
    // Quick runs have too few rounds to judge a bound.
    let missed = records.iter().filter(|record| !record.quick).flat_map(|record| {
        let missed = record.goals.iter().filter(|goal| goal.starts_with("MISSED"));
        missed.map(|goal| format!("goal {goal}: {}/{}\n", record.program, record.title))
    });
    text.extend(missed);
    text
}
