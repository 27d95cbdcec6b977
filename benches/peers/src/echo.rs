//! Echo of small messages: the load, and what it costs the server.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use measuring::closed_loop::{ClosedLoop, LEN};
use measuring::socket;

use crate::child::Server;
use crate::options::Options;
use crate::strace::Calls;
use crate::table::{Bar, Row, Section, Series};
use crate::ways::{Job, Way};

pub(crate) const CONNECTIONS: [usize; 4] = [1, 8, 64, 512];

/// The greatest allowed cost of millstream's best against tokio's, for each number of connections.
const AGAINST_TOKIO: [f64; 4] = [1.00, 0.90, 0.88, 0.88];

/// Loads a server for this long; gives the messages and the time until the last was back.
fn load(server: &mut ClosedLoop, time: Duration) -> io::Result<(u64, Duration)> {
    let start = Instant::now();
    let messages = server.run(|_| start.elapsed() < time)?;
    Ok((messages, start.elapsed()))
}

fn connect(addr: SocketAddr, connections: usize) -> io::Result<ClosedLoop> {
    let streams: io::Result<Vec<TcpStream>> = (0..connections).map(|_| socket::connect(addr)).collect();
    ClosedLoop::new(streams?)
}

/// One round of one contender.
fn round(way: &Way, connections: usize, time: Duration) -> io::Result<[f64; 2]> {
    let mut server = Server::start(way, &[])?;
    let mut connected = connect(server.addr(), connections)?;
    load(&mut connected, time / 5)?;
    let before = server.cpu()?;
    let (messages, wall) = load(&mut connected, time)?;
    let cpu = server.cpu()? - before;
    Ok([cpu.as_secs_f64() * 1e6 / messages as f64, messages as f64 / wall.as_secs_f64()])
}

/// System calls for each message, where they can be traced.
fn calls(way: &Way, connections: usize, time: Duration) -> io::Result<Option<f64>> {
    let server = Server::start(way, &[])?;
    let mut connected = connect(server.addr(), connections)?;
    load(&mut connected, time / 5)?;
    let Some(calls) = Calls::of(server.pid())? else { return Ok(None) };
    let (messages, _) = load(&mut connected, time)?;
    Ok(calls.stop()?.map(|calls| calls as f64 / messages as f64))
}

pub(crate) fn measure(options: &Options, connections: usize) -> io::Result<Section> {
    let ways = Way::of(Job::Echo);
    let mut series: Vec<Series<2>> = ways.iter().map(|_| Series::default()).collect();
    for _ in 0..options.rounds {
        for (way, series) in ways.iter().zip(&mut series) {
            series.push(round(way, connections, options.echo_time()).map_err(|e| way.problem(&e))?);
        }
    }
    let rows = ways.iter().zip(&series).map(|(way, series)| {
        let calls = calls(way, connections, options.echo_time() / 2).map_err(|e| way.problem(&e))?;
        let [cpu, rate] = series.medians();
        let calls = calls.map_or("-".to_owned(), |calls| format!("{calls:.2}"));
        Ok(Row { way, cpu, least: series.least()[0], notes: vec![calls, format!("{:.0}", rate / 1e3)] })
    });
    Ok(Section {
        title: format!("echo, {LEN} B, {connections} connections"),
        unit: "us/message",
        columns: &["calls/message", "1000/s"],
        rows: rows.collect::<io::Result<_>>()?,
    })
}

/// The bars of millstream.
pub(crate) fn bars(sections: &[Section]) -> Vec<Bar> {
    let echoes: Vec<&Section> = sections.iter().filter(|section| section.title.starts_with("echo")).collect();
    let mut bars = Vec::new();
    for (index, section) in echoes.iter().enumerate() {
        let ours = section.best(Way::is_ours);
        bars.push(Bar::new(&section.title, "tokio", ours / section.rows[0].cpu, AGAINST_TOKIO[index]));
        if CONNECTIONS[index] == 64 {
            bars.push(Bar::new(&section.title, "the best peer", ours / section.best(|way| !way.is_ours()), 1.0));
        }
    }
    bars
}
