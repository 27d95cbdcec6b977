//! Several ways to do the same, timed one after the other by criterion and then by turns.

use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode};

use super::cpus::process;
use super::{Row, all_by_turns, table};

/// What work has taken: time, and CPU time of all threads of the process, those of the kernel's that work for its rings
/// included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub wall: Duration,
    pub cpu: Duration,
}

impl Spent {
    /// Adds what `work` takes.
    pub fn on<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (start, cpu) = (Instant::now(), process());
        let done = work();
        self.cpu += process() - cpu;
        self.wall += start.elapsed();
        done
    }
}

/// One way: it does a number of operations, checks them, and says what they took.
pub struct Contender<'a> {
    pub name: &'static str,
    pub run: Box<dyn FnMut(u64) -> Spent + 'a>,
}

/// What is compared.
pub struct Contest<'a> {
    pub title: &'a str,
    /// What the figures are for, and how many of them one operation is.
    pub unit: &'static str,
    pub units: u64,
    /// Operations of a round by turns.
    pub operations: u64,
}

impl Contest<'_> {
    /// Runs the contenders that the command line has chosen; gives the table, if there is anything in it.
    pub fn run(&self, criterion: &mut Criterion, contenders: Vec<Contender<'_>>) -> Option<String> {
        let mut group = criterion.benchmark_group(self.title.replace('/', " "));
        group.sampling_mode(SamplingMode::Flat).sample_size(10);
        let mut chosen = Vec::new();
        for mut contender in contenders {
            let mut ran = false;
            group.bench_function(contender.name, |bencher| {
                bencher.iter_custom(|operations| {
                    ran = true;
                    (contender.run)(operations).wall
                });
            });
            chosen.extend(ran.then_some(contender));
        }
        group.finish();
        let spent = all_by_turns(chosen.len(), self.operations, |contender, operations| {
            let Spent { wall, cpu } = (chosen[contender].run)(operations);
            [cpu, wall]
        });
        let units = self.units as f64;
        let ours = spent.first().map_or(1.0, |[_, wall]| *wall);
        let rows = chosen.iter().zip(spent).map(|(contender, [cpu, wall])| Row {
            name: contender.name.to_owned(),
            cpu: cpu / units,
            note: format!("{:>10.2} us in all {:>7.2}", wall / units, wall / ours),
        });
        let rows: Vec<Row> = rows.collect();
        (!rows.is_empty()).then(|| table(self.title, self.unit, &rows))
    }
}
