//! Raw results: a file of JSON lines that grows with every round, and the whole as one JSON document.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::cell::Cell;
use super::machine::Machine;
use super::plan::Plan;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) plan: Plan,
    pub(crate) machine: Machine,
    pub(crate) cells: Vec<Cell>,
}

/// One round of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) cell: String,
    pub(crate) contender: String,
    pub(crate) round: u32,
    /// Measured time.
    pub(crate) seconds: f64,
    /// Requests or deliveries; a large response counts by the part that was received in the time.
    pub(crate) done: f64,
    /// Bytes of bodies.
    pub(crate) bytes: u64,
    /// CPU time of the server.
    pub(crate) cpu_ns: u64,
    /// CPU time of the load.
    pub(crate) load_cpu_ns: u64,
    /// Memory of the server's processes at the end of the round, if the kernel shows it: shared pages count once.
    pub(crate) pss_kib: Option<u64>,
    /// The same before the first connection, where the memory of connections is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_pss_kib: Option<u64>,
    /// Requests or deliveries that were offered, if the load does not depend on the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) offered: Option<f64>,
    /// Latencies in nanoseconds, each with its count, 1 % exact.
    pub(crate) latency: Vec<(u64, u64)>,
}

impl Record {
    /// Returns requests or deliveries for each second.
    pub(crate) fn rate(&self) -> f64 {
        self.done / self.seconds
    }

    /// Returns the server's CPU time for each request or delivery, in microseconds.
    pub(crate) fn cost(&self) -> f64 {
        self.cpu_ns as f64 / 1e3 / self.done
    }
}

/// System calls of one server for each request or delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calls {
    pub(crate) cell: String,
    pub(crate) contender: String,
    /// What has counted them.
    pub(crate) counter: String,
    pub(crate) all: f64,
    /// By name, where the counter knows names.
    pub(crate) named: BTreeMap<String, f64>,
}

/// What was not measured, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Skipped {
    /// Empty for all cells.
    pub(crate) cell: String,
    /// Empty for all servers.
    pub(crate) contender: String,
    pub(crate) reason: String,
}

/// How the reason begins where a server was measured, and only its system calls were not counted.
pub(super) const UNCOUNTED: &str = "system calls were not counted: ";

impl Skipped {
    /// Returns whether a server has failed in a cell, and was not just absent or not counted.
    pub(crate) fn is_failure(&self) -> bool {
        !self.cell.is_empty() && !self.contender.is_empty() && !self.reason.starts_with(UNCOUNTED)
    }

    /// Returns whether both say that the same is missing, perhaps with reasons that differ in a path or a port.
    fn is_like(&self, other: &Self) -> bool {
        let what = |s: &Self| (s.cell.clone(), s.contender.clone(), s.is_failure());
        what(self) == what(other)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Line {
    Start(Box<Header>),
    Round(Record),
    Calls(Calls),
    Skipped(Skipped),
}

/// A run, complete or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) header: Header,
    pub(crate) rounds: Vec<Record>,
    pub(crate) calls: Vec<Calls>,
    pub(crate) skipped: Vec<Skipped>,
}

impl Results {
    fn new(header: Header) -> Self {
        Self { header, rounds: Vec::new(), calls: Vec::new(), skipped: Vec::new() }
    }

    /// Forgets what a run that goes on finds out again, such as servers that are not installed.
    pub(super) fn forget_absent(&mut self) {
        self.skipped.retain(|skipped| !skipped.cell.is_empty() && !skipped.contender.is_empty());
    }

    fn add(&mut self, line: Line) {
        match line {
            // A file that was resumed has one start.
            Line::Start(_) => {}
            Line::Round(record) => self.rounds.push(record),
            Line::Calls(calls) => self.calls.push(calls),
            Line::Skipped(skipped) => {
                if !self.skipped.iter().any(|known| known.is_like(&skipped)) {
                    self.skipped.push(skipped);
                }
            }
        }
    }

    pub(super) fn has(&self, cell: &str, contender: &str, round: u32) -> bool {
        self.rounds.iter().any(|r| r.cell == cell && r.contender == contender && r.round == round)
    }

    pub(crate) fn calls_of(&self, cell: &str, contender: &str) -> Option<&Calls> {
        self.calls.iter().find(|calls| calls.cell == cell && calls.contender == contender)
    }

    /// Reads a document of JSON or a file of lines, whose last line may be cut off.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
        if let Ok(results) = serde_json::from_str(&text) {
            return Ok(results);
        }
        let mut lines = text.lines().enumerate().peekable();
        let first = lines.next().map(|(_, line)| serde_json::from_str(line));
        let Some(Ok(Line::Start(header))) = first else {
            return Err(wrong(&"not a run: neither its JSON nor its lines"));
        };
        let mut results = Self::new(*header);
        while let Some((number, line)) = lines.next() {
            match serde_json::from_str(line) {
                Ok(line) => results.add(line),
                Err(_) if lines.peek().is_none() && !text.ends_with('\n') => {}
                Err(e) => return Err(wrong(&format!("line {}: {e}", number + 1))),
            }
        }
        Ok(results)
    }
}

/// The file of lines, and what is in it.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    results: Results,
}

impl Journal {
    pub(super) fn read(path: &Path) -> Result<Results, String> {
        Results::read(path)
    }

    pub(super) fn create(dir: &Path, header: Header) -> Result<Self, String> {
        let name = format!("run-{}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        // Two runs in one second have different names.
        for number in 0..100 {
            let path = dir.join(if number == 0 { format!("{name}.jsonl") } else { format!("{name}-{number}.jsonl") });
            match OpenOptions::new().append(true).create_new(true).open(&path) {
                Ok(file) => {
                    let mut journal = Self { file, path, results: Results::new(header.clone()) };
                    journal.add(Line::Start(Box::new(header)))?;
                    return Ok(journal);
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(format!("{}: {e}", path.display())),
            }
        }
        Err(format!("{}: too many runs of one second", dir.display()))
    }

    /// Continues a file. Its lines are written anew beside it first, without one that was cut off.
    pub(super) fn append(path: &Path, results: Results) -> Result<Self, String> {
        let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            return Err(format!("{}: give the file of lines, *.jsonl", path.display()));
        }
        let new = path.with_extension("jsonl.new");
        let mut file = File::create(&new).map_err(wrong)?;
        let lines = std::iter::once(Line::Start(Box::new(results.header.clone())))
            .chain(results.rounds.iter().cloned().map(Line::Round))
            .chain(results.calls.iter().cloned().map(Line::Calls))
            .chain(results.skipped.iter().cloned().map(Line::Skipped));
        for line in lines {
            file.write_all(&text(&line)?).map_err(wrong)?;
        }
        std::fs::rename(&new, path).map_err(wrong)?;
        Ok(Self { file, path: path.to_owned(), results })
    }

    pub(super) fn results(&self) -> &Results {
        &self.results
    }

    pub(super) fn add(&mut self, line: Line) -> Result<(), String> {
        self.file.write_all(&text(&line)?).map_err(|e| format!("{}: {e}", self.path.display()))?;
        self.results.add(line);
        Ok(())
    }

    /// Returns the path of the lines and the results.
    pub(super) fn finish(self) -> (PathBuf, Results) {
        (self.path, self.results)
    }
}

/// One write for a whole line, so that only the last one can be cut off.
fn text(line: &Line) -> Result<Vec<u8>, String> {
    let mut text = serde_json::to_vec(line).map_err(|e| e.to_string())?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(round: u32) -> Line {
        Line::Round(Record {
            cell: "a/b".to_owned(),
            contender: "stock".to_owned(),
            round,
            seconds: 1.0,
            done: 2.5,
            bytes: 3,
            cpu_ns: 4,
            load_cpu_ns: 5,
            pss_kib: Some(6),
            latency: vec![(7, 8)],
            ..Record::default()
        })
    }

    #[test]
    fn an_interrupted_file_is_continued_and_a_wrong_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let header = Header { plan: Plan::default(), machine: Machine::default(), cells: Vec::new() };
        let mut journal = Journal::create(dir.path(), header.clone()).unwrap();
        journal.add(record(0)).unwrap();
        journal.add(record(1)).unwrap();
        let (path, whole) = journal.finish();
        assert!(whole.has("a/b", "stock", 1) && !whole.has("a/b", "stock", 2) && !whole.has("a/b", "nginx", 1));

        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        let cut = Results::read(&path).unwrap();
        assert!(cut.has("a/b", "stock", 0) && !cut.has("a/b", "stock", 1));
        let mut journal = Journal::append(&path, cut).unwrap();
        journal.add(record(1)).unwrap();
        drop(journal);
        assert_eq!(Results::read(&path).unwrap(), whole);

        // A server that is absent again is listed once, with the reason of today; a failure is not forgotten.
        let absent = |reason: &str| {
            let (contender, reason) = ("go".to_owned(), reason.to_owned());
            Line::Skipped(Skipped { cell: String::new(), contender, reason })
        };
        let failed = |reason: &str| {
            let (cell, contender) = ("a/b".to_owned(), "stock".to_owned());
            Line::Skipped(Skipped { cell, contender, reason: reason.to_owned() })
        };
        let mut journal = Journal::append(&path, whole.clone()).unwrap();
        for line in [absent("/data/1: none"), failed("port 1"), failed("port 2"), failed(UNCOUNTED)] {
            journal.add(line).unwrap();
        }
        let mut results = journal.finish().1;
        results.forget_absent();
        let mut journal = Journal::append(&path, results).unwrap();
        journal.add(absent("/data/2: none")).unwrap();
        let skipped = journal.finish().1.skipped;
        let reasons: Vec<&str> = skipped.iter().map(|skipped| skipped.reason.as_str()).collect();
        assert_eq!(reasons, ["port 1", UNCOUNTED, "/data/2: none"]);
        assert_eq!(Results::read(&path).unwrap().skipped, skipped);

        let json = dir.path().join("run.json");
        std::fs::write(&json, serde_json::to_vec(&whole).unwrap()).unwrap();
        assert_eq!(Results::read(&json).unwrap(), whole);
        assert!(Journal::append(&json, whole).unwrap_err().contains("jsonl"));
        std::fs::write(&path, text.replace("\"round\"", "\"rund\"")).unwrap();
        assert!(Results::read(&path).unwrap_err().contains("line 2"));
        assert!(Results::read(&dir.path().join("none")).is_err());
        // A second run of the same second does not overwrite the first.
        let again = Journal::create(dir.path(), header).unwrap();
        assert_ne!(again.path, path);
    }
}
