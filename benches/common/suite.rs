//! A bench program: runs its cases one after another, prints a line for each, and the table at the end.

use std::io::Write as _;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};

use super::contest::{Case, Contender, Measured, by_turns};
use super::options::options;
use super::record::{self, Record};

pub struct Suite {
    program: &'static str,
    start: Instant,
    /// Created for the first case that needs it.
    criterion: Option<Criterion>,
    records: Vec<Record>,
    ran: usize,
}

impl Suite {
    /// Creates the suite of `program`, which is `env!("CARGO_CRATE_NAME")`.
    pub fn new(program: &'static str) -> Self {
        Self { program, start: Instant::now(), criterion: None, records: Vec::new(), ran: 0 }
    }

    /// Returns whether the command line selects a case, so that slow preparations can be skipped.
    pub fn wants(&self, title: &str) -> bool {
        let name = format!("{}/{title}", self.program);
        options().filter.as_ref().is_none_or(|filter| name.contains(&**filter))
    }

    /// Begins a case. Returns `false` if it is not selected.
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

    pub fn run<'a>(&mut self, case: &Case<'_>, contenders: impl FnOnce() -> Vec<Contender<'a>>) {
        if self.begins(case.title) {
            let mut contenders = contenders();
            // Empty if the machine does not support the case, which then has been reported.
            if !contenders.is_empty() {
                let measured = by_turns(case, &mut contenders);
                self.record(case, measured);
            }
        }
    }

    /// Like [`run`](Self::run), after criterion has run each contender. For operations below a millisecond, each of
    /// which processes `amount`.
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
                // Cases are filtered here.
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

    /// Stores the results of a case that [has begun](Self::begins).
    pub fn record(&mut self, case: &Case<'_>, measured: Vec<Measured>) {
        let record = Record::new(self.program, case, measured);
        if options().test {
            return;
        }
        println!("{}", record.details());
        self.records.push(record.clone());
        // Saved after each case, so that the results stay if a later one fails. Replaces the older result.
        let mut all = record::read(self.program);
        match all.iter_mut().find(|old| old.title == record.title) {
            Some(old) => *old = record,
            None => all.push(record),
        }
        record::write(self.program, &all);
    }

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
            // Removes results of cases that no longer exist.
            record::write(self.program, &self.records);
        }
        if !self.records.is_empty() {
            println!("{}", record::table(&self.records));
        }
        println!("{}: {} cases in {} s", self.program, self.ran, self.start.elapsed().as_secs());
    }
}
