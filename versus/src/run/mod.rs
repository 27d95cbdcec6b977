//! A run: the cells of the matrix one after the other, the servers of a cell in turns.

mod calls;
mod cell;
mod exec;
mod interrupt;
mod machine;
mod matrix;
mod network;
mod peers;
mod plan;
mod process;
mod record;
mod round;
mod site;

use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) use cell::{Arrivals, Cell, KEEPS_UP, Unit, Work, size};
pub(crate) use exec::exec;
pub(crate) use record::{Calls, Record, Results, Skipped};

use crate::options::RunOptions;
use crate::say;
use interrupt::Interrupt;
use machine::{Cpus, Machine};
use peers::Contender;
use plan::Plan;
use record::{Header, Journal, Line, UNCOUNTED};
use site::Site;

/// Time that starting, connecting and warming up takes beside a round, for the first estimate of the time left.
const BESIDE: f64 = 0.35;
/// Time that the first response to one of many connections takes.
const CONNECT: f64 = 0.0003;
/// Time of a pass that counts system calls.
const COUNT: f64 = 1.5;

/// Measures, and passes the results and the file of their lines to `report`, also if it is interrupted.
pub(crate) fn run(
    options: &RunOptions,
    report: impl FnOnce(&Results, &Path) -> Result<(), String>,
) -> Result<(), String> {
    std::fs::create_dir_all(&options.out).map_err(|e| format!("--out {}: {e}", options.out.display()))?;
    let cpus = Cpus::get()?;
    let resumed = options.resume.as_deref().map(Journal::read).transpose()?;
    let plan = match &resumed {
        Some(results) => results.header.plan.clone(),
        None => Plan::new(options),
    };
    if let Some(mtu) = plan.mtu.filter(|_| !options.list) {
        network::enter(mtu, options.in_namespace)?;
    }
    let interrupt = Interrupt::install()?;
    let mut cells = matrix::matrix(&plan, cpus.count());
    if cells.is_empty() {
        return Err("no cell has such a name; --list shows all".to_owned());
    }
    let site = Site::new(&options.out)?;
    let (contenders, mut absent) = peers::find(&plan, site.root())?;
    if options.list {
        return list(&plan, &cells, &contenders, &absent);
    }
    let descriptors = machine::raise_descriptors();
    cells.retain(|cell| {
        let fits = u64::from(cell.connections) + 200 <= descriptors;
        if !fits {
            let reason =
                format!("{} connections need a higher limit of descriptors than {descriptors}", cell.connections);
            absent.push(Skipped { cell: cell.name.clone(), contender: String::new(), reason });
        }
        fits
    });
    let machine = Machine::get(&cpus, plan.mtu);
    let mut journal = match (resumed, &options.resume) {
        (Some(mut results), Some(path)) => {
            results.header.machine.same(&machine).map_err(|e| format!("{}: {e}", path.display()))?;
            results.forget_absent();
            Journal::append(path, results)?
        }
        _ => Journal::create(&options.out, Header { plan: plan.clone(), machine, cells: cells.clone() })?,
    };
    for skipped in absent {
        journal.add(Line::Skipped(skipped))?;
    }
    let measured = measure(&cells, &contenders, &plan, &cpus, &site, &interrupt, &mut journal);
    drop(site);
    let (path, results) = journal.finish();
    report(&results, &path)?;
    match measured {
        Err(Stopped::Interrupted) => Err(format!("interrupted; continue with --resume {}", path.display())),
        Err(Stopped::Failed(e)) => Err(e),
        Ok(()) => Ok(()),
    }
}

fn list(plan: &Plan, cells: &[Cell], contenders: &[Contender], absent: &[Skipped]) -> Result<(), String> {
    for cell in cells {
        let names: Vec<_> = contenders.iter().filter(|c| c.can(cell)).map(|c| c.name.as_str()).collect();
        let time = cell.time(plan.seconds);
        let time = if time == plan.seconds { String::new() } else { format!(" (rounds of {time} s)") };
        say(format_args!("{:<18} {:<70} {}{time}\n", cell.name, cell.describe(), names.join(" ")));
    }
    let servers = |cell: &Cell| contenders.iter().filter(|contender| contender.can(cell)).count();
    let minutes = (expected(plan, cells, servers) / 60.0).ceil();
    say(format_args!("{} cells, {} rounds of {} s: about {minutes} min\n", cells.len(), plan.rounds, plan.seconds));
    absent.iter().for_each(|skipped| say(format_args!("absent: {} ({})\n", skipped.contender, skipped.reason)));
    Ok(())
}

/// Returns how many seconds a run takes, roughly.
fn expected(plan: &Plan, cells: &[Cell], servers: impl Fn(&Cell) -> usize) -> f64 {
    let each = |cell: &Cell| {
        let round = cell.time(plan.seconds) + BESIDE + CONNECT * f64::from(cell.connections);
        let calls = if plan.calls && cell.counts_calls() { COUNT } else { 0.0 };
        servers(cell) as f64 * (f64::from(plan.rounds) * round + calls)
    };
    cells.iter().map(each).sum()
}

enum Stopped {
    Interrupted,
    Failed(String),
}

impl From<String> for Stopped {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

/// Runs what the journal does not have yet. A contender that fails in a cell is left out of the rest of the cell.
fn measure(
    cells: &[Cell],
    contenders: &[Contender],
    plan: &Plan,
    cpus: &Cpus,
    site: &Site,
    interrupt: &Interrupt,
    journal: &mut Journal,
) -> Result<(), Stopped> {
    let counter = if plan.calls { calls::Counter::find() } else { Err("left out by --no-calls".to_owned()) };
    if let Err(reason) = &counter {
        journal.add(Line::Skipped(Skipped {
            cell: String::new(),
            contender: "system calls".to_owned(),
            reason: reason.clone(),
        }))?;
    }
    let mut progress = Progress::new(cells, contenders, plan, journal);
    for cell in cells {
        let mut able: Vec<&Contender> = contenders.iter().filter(|contender| contender.can(cell)).collect();
        site.prepare(cell)?;
        for number in 0..plan.rounds {
            let mut lost = Vec::new();
            for contender in turns(&able, number) {
                if journal.results().has(&cell.name, &contender.name, number) {
                    continue;
                }
                progress.show(cell, contender, number);
                let ran = round::Round { cell, contender, number, plan, cpus, site, interrupt }.run();
                match ran {
                    Ok(record) => journal.add(Line::Round(record))?,
                    Err(_) if interrupt.is_set() => return Err(Stopped::Interrupted),
                    Err(reason) => {
                        lost.push(contender.name.clone());
                        journal.add(Line::Skipped(skipped(cell, contender, reason)))?;
                    }
                }
                progress.step();
            }
            able.retain(|contender| !lost.contains(&contender.name));
        }
        for contender in &able {
            let Ok(counter) = &counter else { break };
            if journal.results().calls_of(&cell.name, &contender.name).is_some() || !cell.counts_calls() {
                continue;
            }
            let round = round::Round { cell, contender, number: plan.rounds, plan, cpus, site, interrupt };
            match round.count(counter) {
                Ok(calls) => journal.add(Line::Calls(calls))?,
                Err(_) if interrupt.is_set() => return Err(Stopped::Interrupted),
                Err(reason) => {
                    let reason = format!("{UNCOUNTED}{reason}");
                    journal.add(Line::Skipped(skipped(cell, contender, reason)))?;
                }
            }
        }
        site.forget(cell);
    }
    progress.end();
    Ok(())
}

/// Returns the servers in the order of a round. Each round begins with the next one, so that no server always follows the
/// same warmth or noise of the machine.
fn turns<T>(servers: &[T], round: u32) -> impl Iterator<Item = &T> {
    let (before, from) = servers.split_at(round as usize % servers.len().max(1));
    from.iter().chain(before)
}

fn skipped(cell: &Cell, contender: &Contender, reason: String) -> Skipped {
    eprintln!("\r\x1b[K{}: {}: {reason}", cell.name, contender.name);
    Skipped { cell: cell.name.clone(), contender: contender.name.clone(), reason }
}

/// One line on stderr: what runs, and the time left.
struct Progress {
    started: Instant,
    done: u32,
    all: u32,
    first: f64,
}

impl Progress {
    fn new(cells: &[Cell], contenders: &[Contender], plan: &Plan, journal: &Journal) -> Self {
        let missing = |cell: &Cell, contender: &Contender| {
            (0..plan.rounds).filter(|n| !journal.results().has(&cell.name, &contender.name, *n)).count() as u32
        };
        let all = cells.iter().flat_map(|cell| {
            contenders.iter().filter(|contender| contender.can(cell)).map(move |contender| missing(cell, contender))
        });
        Self { started: Instant::now(), done: 0, all: all.sum(), first: plan.seconds + BESIDE }
    }

    fn show(&self, cell: &Cell, contender: &Contender, round: u32) {
        let each = match self.done {
            0..3 => self.first,
            done => self.started.elapsed().as_secs_f64() / f64::from(done),
        };
        let left = Duration::from_secs((each * f64::from(self.all - self.done)) as u64);
        let (minutes, seconds) = (left.as_secs() / 60, left.as_secs() % 60);
        let Self { done, all, .. } = self;
        eprint!(
            "\r\x1b[K{done}/{all}  {minutes} min {seconds:02} s left  {}  {}  round {}",
            cell.name,
            contender.name,
            round + 1
        );
    }

    fn step(&mut self) {
        self.done = (self.done + 1).min(self.all);
    }

    fn end(&self) {
        eprintln!("\r\x1b[K{} rounds in {} s", self.done, self.started.elapsed().as_secs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_of_two_servers_takes_less_than_four_minutes() {
        let plan = Plan { quick: true, seconds: 0.4, rounds: 5, calls: true, ..Plan::default() };
        let seconds = |plan: &Plan, servers| expected(plan, &matrix::matrix(plan, 2), |_| servers);
        assert!((60.0..240.0).contains(&seconds(&plan, 2)), "{}", seconds(&plan, 2));
        assert!(seconds(&Plan { calls: false, ..plan.clone() }, 2) < seconds(&plan, 2));
        assert!(seconds(&Plan { quick: false, ..plan.clone() }, 2) > 2.0 * seconds(&plan, 2));
    }

    #[test]
    fn each_server_begins_as_often_as_the_others() {
        let order = |round| turns(&["a", "b", "c"], round).copied().collect::<String>();
        assert_eq!([0, 1, 2, 3].map(order), ["abc", "bca", "cab", "abc"]);
        assert_eq!(turns::<u8>(&[], 1).count(), 0);
    }
}
