//! One program: its cases one after the other, with a line for each, and its table at the end.

use std::io::Write as _;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};

use super::contest::{Case, Contender, Measured, by_turns};
use super::options::options;
use super::record::{self, Record};

/// The cases of a program.
pub struct Suite {
    program: &'static str,
    start: Instant,
    /// Made for the first case that needs it.
    criterion: Option<Criterion>,
    records: Vec<Record>,
    ran: usize,
}

impl Suite {
    /// `program` is `env!("CARGO_CRATE_NAME")`.
    pub fn new(program: &'static str) -> Self {
        Self { program, start: Instant::now(), criterion: None, records: Vec::new(), ran: 0 }
    }

    /// Whether the command line asks for a case: what it needs may take long to make.
    pub fn wants(&self, title: &str) -> bool {
        let name = format!("{}/{title}", self.program);
        options().filter.as_ref().is_none_or(|filter| name.contains(&**filter))
    }

    /// Begins a case. Returns `false` if it is not to run.
    pub fn begins(&mut self, title: &str) -> bool {
        if !self.wants(title) {
            return false;
        }
        let name = format!("{}/{title}", self.program);
        if options().list {
            println!("{name}: benchmark");
            return false;
        }
        self.ran += 1;
        println!("[{:>4} s] {name}", self.start.elapsed().as_secs());
        std::io::stdout().flush().unwrap();
        true
    }

    /// Runs the contenders of a case by turns.
    pub fn run<'a>(&mut self, case: &Case<'_>, contenders: impl FnOnce() -> Vec<Contender<'a>>) {
        if self.begins(case.title) {
            let mut contenders = contenders();
            // A machine may not be able to do it, which the case has said.
            if !contenders.is_empty() {
                let measured = by_turns(case, &mut contenders);
                self.record(case, measured);
            }
        }
    }

    /// As [`run`](Self::run), after criterion has run each of them. For operations of less than a millisecond; `amount` is
    /// handled by one of them.
    pub fn run_micro<'a>(
        &mut self,
        case: &Case<'_>,
        amount: Throughput,
        contenders: impl FnOnce() -> Vec<Contender<'a>>,
    ) {
        if !self.begins(case.title) {
            return;
        }
        let mut contenders = contenders();
        let criterion = self.criterion.get_or_insert_with(|| {
            Criterion::default()
                .without_plots()
                .warm_up_time(Duration::from_millis(100))
                .measurement_time(Duration::from_millis(300))
                .sample_size(20)
                .nresamples(10_000)
                .configure_from_args()
                // The names of cases are filtered here.
                .with_filter("")
        });
        let mut group = criterion.benchmark_group(format!("{}/{}", self.program, case.title));
        group.throughput(amount);
        for contender in &mut contenders {
            group.bench_function(contender.name, |bencher| {
                bencher.iter_custom(|operations| contender.run.run(operations).wall);
            });
        }
        group.finish();
        let measured = by_turns(case, &mut contenders);
        self.record(case, measured);
    }

    /// Takes the results of a case that [has begun](Self::begins).
    pub fn record(&mut self, case: &Case<'_>, measured: Vec<Measured>) {
        let record = Record::new(self.program, case, measured);
        if options().test {
            return;
        }
        println!("{}", record.details());
        self.records.push(record.clone());
        // After each case, so that the results stay when a later one fails. In the place of the older result.
        let mut all = record::read(self.program);
        match all.iter_mut().find(|old| old.title == record.title) {
            Some(old) => *old = record,
            None => all.push(record),
        }
        record::write(self.program, &all);
    }

    /// Prints the table.
    pub fn finish(mut self) {
        if let Some(criterion) = &mut self.criterion {
            criterion.final_summary();
        }
        let options = options();
        if options.list {
            return;
        }
        if options.test {
            println!("{}: {} cases, each once", self.program, self.ran);
            return;
        }
        if options.filter.is_none() {
            // Those of cases that are gone.
            record::write(self.program, &self.records);
        }
        if !self.records.is_empty() {
            println!("{}", record::table(&self.records));
        }
        println!("{}: {} cases in {} s", self.program, self.ran, self.start.elapsed().as_secs());
    }
}
