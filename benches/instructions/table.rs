//! The table, and the counts that the repository keeps.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::count::{Count, count};
use crate::rows::{ROWS, Row};

/// How much a row may exceed its recorded ratio: counts of one build repeat within 1 %, those of another machine within 3 %.
const SLACK: f64 = 0.05;
/// By how much a unit may exceed its recorded calls that send. Other calls are not compared: how many events one wait returns
/// depends on the clock.
const SENDS_SLACK: f64 = 0.05;

/// The counts of a row.
struct Counted {
    row: Row,
    ours: Count,
    rival: Count,
}

impl Counted {
    fn ratio(&self) -> f64 {
        self.ours.instructions / self.rival.instructions
    }
}

/// Returns the calls that send.
fn sends(count: &Count) -> f64 {
    let sends = count.calls.iter().filter(|(name, _)| name.starts_with("send") || name.starts_with("write"));
    sends.map(|(_, n)| n).sum()
}

pub(crate) fn print(filter: &str) -> Result<(), String> {
    println!("{}", line(["row", "unit", "ours", "rival", "ratio", "calls of ours", "of the rival"].map(str::to_owned)));
    let counted = all(filter, |counted| {
        let list = |count: &Count| {
            let each = count.calls.iter().map(|(name, n)| format!("{name} {n:.2}"));
            each.collect::<Vec<_>>().join(", ")
        };
        let cells = [
            counted.row.name.to_owned(),
            counted.row.work.unit().to_owned(),
            format!("{:.0}", counted.ours.instructions),
            format!("{:.0}", counted.rival.instructions),
            format!("{:.3}", counted.ratio()),
            list(&counted.ours),
            list(&counted.rival),
        ];
        println!("{}", line(cells));
    })?;
    if counted.is_empty() {
        return Err(format!("no row has '{filter}' in its name"));
    }
    Ok(())
}

fn line(cells: [String; 7]) -> String {
    let [name, unit, ours, rival, ratio, calls, rivals] = cells;
    format!("{name:<48} {unit:<12} {ours:>8} {rival:>8} {ratio:>6}   {calls}  |  {rivals}")
}

/// Counts all rows with `filter` in their name; a server that has done the same work for another row is not run again.
fn all(filter: &str, mut each: impl FnMut(&Counted)) -> Result<Vec<Counted>, String> {
    let mut known: Vec<(String, Count)> = Vec::new();
    let mut all = Vec::new();
    for row in ROWS.into_iter().filter(|row| row.name.contains(filter)) {
        let [ours, rival] = row.servers.map(|server| {
            let key = format!("{server} {:?} {}", row.work, row.connections);
            if let Some((_, found)) = known.iter().find(|(name, _)| *name == key) {
                return Ok(found.clone());
            }
            let found = count(server, row.work, row.connections)?;
            known.push((key, found.clone()));
            Ok::<_, String>(found)
        });
        let counted = Counted { row, ours: ours?, rival: rival? };
        each(&counted);
        all.push(counted);
    }
    Ok(all)
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions/counts.txt")
}

pub(crate) fn write() -> Result<(), String> {
    let mut text = String::new();
    text +=
        "# Instructions of user space for each unit: ours, the rival's, their ratio; and calls of ours that send.\n";
    text +=
        "# Written by `.ci/instructions write`; `.ci/instructions check` fails if a ratio grows by more than 5 %.\n";
    let counted = all("", |counted| eprintln!("{}: {:.3}", counted.row.name, counted.ratio()))?;
    for counted in counted {
        let [ours, rival] = [&counted.ours, &counted.rival].map(|count| count.instructions);
        let (name, ratio, sends) = (counted.row.name, counted.ratio(), sends(&counted.ours));
        writeln!(text, "{ours:>8.0} {rival:>8.0} {ratio:>6.3} {sends:>6.2}  {name}").expect("memory takes all");
    }
    std::fs::write(path(), text).map_err(|e| format!("{}: {e}", path().display()))
}

pub(crate) fn check() -> Result<(), String> {
    let text = std::fs::read_to_string(path()).map_err(|e| format!("{}: {e}", path().display()))?;
    let mut wrong = String::new();
    let mut compare = |counted: &Counted| {
        let name = counted.row.name;
        let Some((ratio, most)) = recorded(&text, name) else {
            wrong += &format!("\n{name}: not in counts.txt; run .ci/instructions write");
            return;
        };
        let (now, sends) = (counted.ratio(), sends(&counted.ours));
        println!("{name:<48} {now:>6.3}, recorded {ratio:.3}; {sends:.2} sends, recorded {most:.2}");
        if now > ratio * (1.0 + SLACK) || sends > most + SENDS_SLACK {
            wrong +=
                &format!("\n{name}: {now:.3} of the rival, recorded {ratio:.3}; {sends:.2} sends, recorded {most:.2}");
        }
    };
    all("", &mut compare)?;
    if wrong.is_empty() { Ok(()) } else { Err(format!("more than recorded:{wrong}")) }
}

/// Returns the ratio and the sends of a row of the file.
fn recorded(text: &str, name: &str) -> Option<(f64, f64)> {
    let numbers = text.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix("  "))?;
    let numbers: Vec<f64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [_, _, ratio, sends] => Some((ratio, sends)),
        _ => None,
    }
}
