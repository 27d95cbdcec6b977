//! One round: a server is started, loaded, measured, and ended.

use std::thread;
use std::time::{Duration, Instant};

use measuring::latencies::Latencies;
use rustix::time::{ClockId, clock_gettime};

use super::calls::Counter;
use super::cell::{Arrivals, Cell, REST, TOKENS, Work};
use super::exec::pin;
use super::interrupt::Interrupt;
use super::machine::Cpus;
use super::peers::{self, Contender};
use super::plan::Plan;
use super::process::{CpuTime, Server};
use super::record::{Calls, Record};
use super::site::{self, Site};
use crate::load::{self, Gauge, Job, Task};
use crate::serve::TOKEN;

/// How long all connections may take to get their first responses.
const FIRST: Duration = Duration::from_secs(60);
/// How long a round is extended at most, for a response to complete in it.
const EXTENDED: Duration = Duration::from_secs(30);
/// How long a server is left alone before its first connection, where its memory is measured: workers may still start.
const SETTLE: Duration = Duration::from_millis(500);
/// More threads of the load than this are not needed by any server measured here.
const THREADS_MAX: usize = 16;

pub(super) struct Round<'a> {
    pub(super) cell: &'a Cell,
    pub(super) contender: &'a Contender,
    pub(super) number: u32,
    pub(super) plan: &'a Plan,
    pub(super) cpus: &'a Cpus,
    pub(super) site: &'a Site,
    pub(super) interrupt: &'a Interrupt,
}

/// A server that has just started.
struct Start {
    at: Instant,
    cpu: CpuTime,
    load_cpu: Duration,
    pss_kib: Option<u64>,
}

impl Round<'_> {
    pub(super) fn run(&self) -> Result<Record, String> {
        let (mut record, latencies) = self.loaded(|server, gauge, start| match self.cell.rests() {
            true => self.rest(server, gauge, start),
            false => self.measure(server, gauge),
        })?;
        record.latency = latencies.counts();
        Ok(record)
    }

    /// Counts system calls in place of time.
    pub(super) fn count(&self, counter: &Counter) -> Result<Calls, String> {
        let (_, load) = self.cpus.share(self.cell.workers);
        let time = Duration::from_secs_f64(self.plan.seconds.clamp(0.2, 0.5));
        self.loaded(|server, gauge, _| {
            let mut done = || self.done(gauge);
            let (named, all, done) = counter.count(server, &load, time, self.interrupt, &mut done)?;
            if done < 0.5 {
                return Err(format!("no {} was answered meanwhile", self.cell.unit().one()));
            }
            Ok(Calls {
                cell: self.cell.name.clone(),
                contender: self.contender.name.clone(),
                counter: counter.name().to_owned(),
                all: all as f64 / done,
                named: named.into_iter().map(|(name, calls)| (name, calls as f64 / done)).collect(),
            })
        })
        .map(|(calls, _)| calls)
    }

    fn done(&self, gauge: &Gauge) -> f64 {
        let count = gauge.count();
        match self.cell.len() {
            Some(len) => count.bytes as f64 / len as f64,
            None => count.done as f64,
        }
    }

    /// Runs `work` while the server is under load, after all connections have got a response.
    fn loaded<T>(
        &self,
        work: impl FnOnce(&Server, &Gauge, &Start) -> Result<T, String>,
    ) -> Result<(T, Latencies), String> {
        let Self { cell, cpus, site, interrupt, .. } = *self;
        let (server_cpus, load_cpus) = cpus.share(cell.workers);
        pin(&load_cpus)?;
        let origin = match cell.work.behind() {
            Some(_) => {
                let started = Server::start(&peers::origin(cell.work, site)?, &load_cpus, interrupt);
                Some(started.map_err(|e| format!("the server behind the relay or proxy: {e}"))?)
            }
            _ => None,
        };
        let to = origin.as_ref().map(|origin| origin.address);
        let launch = self.contender.launch(cell, site, to)?;
        let server = Server::start(&launch, &server_cpus, interrupt)?;
        if cell.rests() {
            interrupt.wait(SETTLE, || None::<()>)?;
        }
        let pss_kib = if cell.rests() { server.pss_kib() } else { None };
        let start = Start { at: Instant::now(), cpu: server.cpu(), load_cpu: own_cpu(), pss_kib };
        if self.number == 0 {
            self.check(&server)?;
        }
        let gauge = Gauge::default();
        let jobs = self.jobs(&server, load_cpus.len());
        let (worked, latencies) = thread::scope(|scope| {
            let threads: Vec<_> = jobs
                .iter()
                .zip(load_cpus.iter().cycle())
                .map(|(job, cpu)| {
                    let gauge = &gauge;
                    scope.spawn(move || {
                        if let Err(e) = pin(&[*cpu]) {
                            gauge.fail(e);
                        }
                        load::run(job, gauge)
                    })
                })
                .collect();
            let worked = self.answered(&gauge).and_then(|()| work(&server, &gauge, &start));
            gauge.stop();
            let mut latencies = Latencies::default();
            for thread in threads {
                match thread.join() {
                    Ok(part) => latencies.add(&part),
                    Err(_) => gauge.fail("a thread of the load panicked"),
                }
            }
            (worked, latencies)
        });
        let worked = match gauge.problem() {
            Some(problem) => Err(problem),
            None => worked,
        };
        drop((server, origin));
        let checked = match cell.work {
            Work::Upload(len) if worked.is_ok() && self.number == 0 => site.check_upload(len),
            _ => Ok(()),
        };
        site.remove_uploads();
        checked?;
        Ok((worked?, latencies))
    }

    /// Compares one response before the load begins.
    fn check(&self, server: &Server) -> Result<(), String> {
        let Self { cell, .. } = *self;
        let path = site::path(cell.work);
        let check = |len| load::client::check(server.address, cell.protocol, &path, len);
        let (got, wanted) = match cell.work.response() {
            Work::File(len) => (check(Some(len))?, len),
            Work::Hello | Work::Handshake { .. } => (check(None)?, 12),
            Work::Tokens => (check(None)?, TOKENS),
            _ => return Ok(()),
        };
        if got == wanted { Ok(()) } else { Err(format!("{path} has {got} bytes in place of {wanted}")) }
    }

    /// Shares the connections out among the threads of the load.
    fn jobs(&self, server: &Server, cpus: usize) -> Vec<Job> {
        let Self { cell, .. } = *self;
        let threads = cpus.min(THREADS_MAX).min(cell.connections as usize).max(1) as u32;
        let shares = (0..threads).map(|n| cell.connections / threads + u32::from(n < cell.connections % threads));
        let mut first = 0;
        shares
            .map(|connections| {
                let job = Job {
                    address: server.address,
                    protocol: cell.protocol,
                    path: site::path(cell.work),
                    first,
                    connections,
                    streams: cell.streams,
                    task: self.task(),
                };
                first += connections;
                job
            })
            .collect()
    }

    fn task(&self) -> Task {
        let Self { cell, .. } = *self;
        match (cell.work, cell.arrivals) {
            (Work::Upload(len), _) => Task::Put(site::upload(len)),
            (Work::Handshake { resumed }, _) => Task::Handshakes { resumed },
            (Work::Events(_) | Work::Paced, _) => Task::Events,
            (_, Arrivals::Closed) => Task::Get,
            (_, Arrivals::Open(rate)) => {
                let rate = f64::from(rate) / f64::from(cell.connections);
                // The same times for all servers of a round.
                Task::Open { rate, seed: self.number.into() }
            }
            (_, Arrivals::Churn) => Task::Churn,
            (_, Arrivals::Once) => Task::Once,
        }
    }

    /// Waits until every connection has got a response, and a little longer.
    fn answered(&self, gauge: &Gauge) -> Result<(), String> {
        let wanted = self.cell.connections * self.cell.streams;
        let answered = self.interrupt.wait(FIRST, || match gauge.problem() {
            Some(problem) => Some(Err(problem)),
            None => (gauge.answered() >= wanted).then_some(Ok(())),
        })?;
        let late = || Err(format!("only {} of {wanted} connections got an answer in {FIRST:?}", gauge.answered()));
        answered.unwrap_or_else(late)?;
        self.interrupt.wait(Duration::from_secs_f64((self.plan.seconds / 4.0).min(0.2)), || None::<()>).map(drop)
    }

    fn measure(&self, server: &Server, gauge: &Gauge) -> Result<Record, String> {
        let (cpu, load_cpu, before) = (server.cpu(), own_cpu(), gauge.count());
        let (done, started) = (self.done(gauge), Instant::now());
        gauge.start_measuring();
        let problem = || gauge.problem();
        if let Some(problem) = self.interrupt.wait(Duration::from_secs_f64(self.plan.seconds), problem)? {
            return Err(problem);
        }
        let more = || (gauge.count().done > before.done || gauge.problem().is_some()).then_some(());
        self.interrupt.wait(EXTENDED, more)?.ok_or("no response was complete in the time of a round")?;
        let after = gauge.count();
        let done = self.done(gauge) - done;
        let seconds = started.elapsed().as_secs_f64();
        let (cpu, load_cpu) = (server.cpu().since(&cpu), own_cpu().saturating_sub(load_cpu));
        // While the load is on: its end frees memory.
        let pss_kib = server.pss_kib();
        gauge.stop();
        let bytes = after.bytes - before.bytes;
        self.check_tokens(done, bytes)?;
        let offered = self.cell.offered().map(|rate| match self.cell.arrivals {
            // What was due, which is random.
            Arrivals::Open(_) => (after.offered - before.offered) as f64,
            _ => rate * seconds,
        });
        Ok(Record {
            seconds,
            done,
            bytes,
            cpu_ns: cpu,
            load_cpu_ns: nanos(load_cpu),
            pss_kib,
            offered,
            ..self.record()
        })
    }

    /// Leaves the server alone after the load, whose connections stay open, and reads its memory.
    fn rest(&self, server: &Server, gauge: &Gauge, start: &Start) -> Result<Record, String> {
        let count = gauge.count();
        if let Some(problem) = self.interrupt.wait(REST, || gauge.problem())? {
            return Err(format!("with idle connections: {problem}"));
        }
        let (cpu, load_cpu) = (server.cpu().since(&start.cpu), own_cpu().saturating_sub(start.load_cpu));
        Ok(Record {
            seconds: start.at.elapsed().as_secs_f64(),
            done: count.done as f64,
            bytes: count.bytes,
            cpu_ns: cpu,
            load_cpu_ns: nanos(load_cpu),
            pss_kib: server.pss_kib(),
            first_pss_kib: start.pss_kib,
            ..self.record()
        })
    }

    /// Returns a record of this round without figures.
    fn record(&self) -> Record {
        let (cell, contender) = (self.cell.name.clone(), self.contender.name.clone());
        Record { cell, contender, round: self.number, ..Record::default() }
    }

    /// Checks the length of tokens, which no response before the load shows, because theirs never ends.
    fn check_tokens(&self, done: f64, bytes: u64) -> Result<(), String> {
        // Bytes are counted before the tokens in them, of which there are many if the load is late.
        let difference = (bytes as f64 / TOKEN as f64 - done).abs();
        let wrong = self.cell.work == Work::Paced && difference > 100.0 + done / 100.0;
        if wrong { Err(format!("tokens have {:.1} bytes in place of {TOKEN}", bytes as f64 / done)) } else { Ok(()) }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn own_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
