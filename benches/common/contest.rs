//! Contenders that do the same work in turns.

use std::hint::black_box;
use std::time::{Duration, Instant};

use measuring::cpus::process;

use super::cpu_of_this_thread;
use super::options::options;

#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub wall: Duration,
    pub cpu: Duration,
}

impl Spent {
    /// Adds the time of `work`. CPU time is that of all threads of the process, including the kernel's io_uring
    /// workers.
    pub fn on<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (start, cpu) = (Instant::now(), process());
        let done = work();
        self.cpu += process() - cpu;
        self.wall += start.elapsed();
        done
    }

    /// Like [`on`](Self::on), with the CPU time of this thread only.
    pub fn on_this_thread<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (start, cpu) = (Instant::now(), cpu_of_this_thread());
        let done = work();
        self.cpu += cpu_of_this_thread() - cpu;
        self.wall += start.elapsed();
        done
    }
}

pub trait Run {
    /// Performs and checks `operations`. Returns their time, without preparations and checks.
    fn run(&mut self, operations: u64) -> Spent;

    /// Returns a remark for the table, after all rounds.
    fn note(&mut self) -> String {
        String::new()
    }
}

impl<F: FnMut(u64) -> Spent> Run for F {
    fn run(&mut self, operations: u64) -> Spent {
        self(operations)
    }
}

/// One way to do the work of a case.
///
/// The name tells its kind. `millstream …` is ours. `floor …` does less than a rival must: it blocks the thread of the
/// runtime, has everything at hand, or omits the work. All others are rivals.
pub struct Contender<'a> {
    pub name: &'static str,
    pub run: Box<dyn Run + 'a>,
}

impl<'a> Contender<'a> {
    pub fn new(name: &'static str, run: impl FnMut(u64) -> Spent + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }

    /// Creates a contender whose work runs on this thread without preparations and checks.
    pub fn of(name: &'static str, mut work: impl FnMut() + 'a) -> Self {
        Self::new(name, move |operations| {
            let mut spent = Spent::default();
            spent.on_this_thread(|| {
                for _ in 0..operations {
                    black_box(&mut work)();
                }
            });
            spent
        })
    }
}

/// The time that decides. The other one is shown beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Cpu,
    Wall,
}

/// A bound for the time of our first contender, as a share of another's.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    pub against: &'static str,
    pub by: By,
    pub most: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub title: &'a str,
    pub by: By,
    /// The figures are microseconds per unit.
    pub unit: &'a str,
    /// Name of the time that does not decide.
    pub other: &'a str,
    /// Units per operation.
    pub units: u64,
    /// Operations per turn; `None` finds the number by trial.
    pub operations: Option<u64>,
    pub goals: &'a [Goal],
}

impl<'a> Case<'a> {
    pub fn new(title: &'a str, unit: &'a str, units: u64) -> Self {
        Self { title, by: By::Cpu, unit, other: "wall us", units, operations: None, goals: &[] }
    }

    pub fn by_wall(title: &'a str, unit: &'a str, units: u64) -> Self {
        Self { by: By::Wall, other: "CPU us", ..Self::new(title, unit, units) }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub name: String,
    pub cpu: Vec<f64>,
    pub wall: Vec<f64>,
    pub note: String,
}

/// Returns the number of operations that take about `time`. Runs some as a warm-up.
fn operations(run: &mut dyn Run, time: Duration) -> u64 {
    let mut operations = 1;
    loop {
        let start = Instant::now();
        let spent = run.run(operations);
        // Preparations and checks count too, but at most as half of the time.
        let each = spent.wall.max(start.elapsed() / 2).as_secs_f64() / operations as f64;
        let wanted = (time.as_secs_f64() / each.max(1e-10)) as u64;
        if wanted <= operations * 10 {
            return wanted.max(1);
        }
        operations *= 10;
    }
}

/// Runs the contenders in turns. Returns the microseconds per unit, of each in each round.
pub fn by_turns(case: &Case<'_>, contenders: &mut [Contender<'_>]) -> Vec<Measured> {
    let options = options();
    let (rounds, start) = (options.rounds(), Instant::now());
    let turn = options.time() / rounds as u32;
    let counts: Vec<u64> = contenders
        .iter_mut()
        .map(|contender| match case.operations {
            _ if options.test => 1,
            Some(operations) => operations,
            None => operations(&mut *contender.run, turn),
        })
        .collect();
    let mut measured: Vec<Measured> =
        contenders.iter().map(|contender| Measured { name: contender.name.to_owned(), ..Default::default() }).collect();
    for round in 0..rounds {
        // Slow operations get fewer rounds.
        let is_late = start.elapsed() > options.time() * contenders.len() as u32 * 3;
        if round >= 3 && round % 2 == 1 && is_late && case.operations.is_none() {
            break;
        }
        let mut turn = |index: usize| {
            let spent = contenders[index].run.run(counts[index]);
            let each = |time: Duration| time.as_secs_f64() * 1e6 / (counts[index] * case.units) as f64;
            measured[index].cpu.push(each(spent.cpu));
            measured[index].wall.push(each(spent.wall));
        };
        // Alternating order, so that no contender always follows the same other one.
        match round % 2 {
            0 => (0..counts.len()).for_each(&mut turn),
            _ => (0..counts.len()).rev().for_each(&mut turn),
        }
    }
    for (contender, measured) in contenders.iter_mut().zip(&mut measured) {
        measured.note = contender.run.note();
    }
    measured
}
