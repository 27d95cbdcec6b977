//! A relay between a source and a sink: what a GiB costs it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use measuring::noise::{PERIOD, noise};
use measuring::socket;
use rustix::net::{RecvFlags, recv};

use crate::child::Server;
use crate::options::Options;
use crate::table::{Row, Section, Series};
use crate::ways::{Job, Way};

/// Bytes that are relayed and compared before anything is measured.
const CHECKED: u64 = 16 << 20;

const GIB: f64 = (1u64 << 30) as f64;

/// Sends `len` bytes through the relay to `sink`; gives the time until the last has arrived there. Arriving bytes are
/// compared if `checked`, and else counted and dropped by the kernel, which makes the sink cheaper than the relay.
fn transfer(relay: SocketAddr, sink: &TcpListener, bytes: &[u8], len: u64, checked: bool) -> io::Result<Duration> {
    let source = socket::connect(relay)?;
    let (mut arriving, _) = sink.accept()?;
    let start = Instant::now();
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut left = len;
            while left > 0 {
                let n = left.min(bytes.len() as u64);
                (&source).write_all(&bytes[..n as usize])?;
                left -= n;
            }
            source.shutdown(Shutdown::Write)
        });
        let mut buffer = vec![0; 256 << 10];
        let mut arrived = 0;
        loop {
            let n = match checked {
                true => arriving.read(&mut buffer)?,
                false => recv(&arriving, &mut buffer, RecvFlags::TRUNC)?.1,
            };
            if n == 0 {
                break;
            }
            if checked {
                let at = (arrived % bytes.len() as u64) as usize;
                let mut expected = bytes[at..].iter().chain(bytes);
                if !buffer[..n].iter().all(|byte| expected.next() == Some(byte)) {
                    return Err(io::Error::other(format!("wrong bytes arrived in the {n} from {arrived}")));
                }
            }
            arrived += n as u64;
        }
        let wall = start.elapsed();
        sending.join().expect("it does not panic")?;
        if arrived != len {
            return Err(io::Error::other(format!("{arrived} of {len} bytes arrived")));
        }
        // The relay is done when both ends are, this way round as well.
        drop(arriving);
        match (&source).read(&mut [0])? {
            0 => Ok(wall),
            _ => Err(io::Error::other("the relay sent something nobody has written")),
        }
    })
}

fn round(way: &Way, bytes: &[u8], len: u64) -> io::Result<[f64; 2]> {
    let sink = socket::listener()?;
    let mut server = Server::start(way, &[sink.local_addr()?.to_string()])?;
    transfer(server.addr(), &sink, bytes, CHECKED, true)?;
    let before = server.cpu()?;
    let wall = transfer(server.addr(), &sink, bytes, len, false)?;
    let cpu = server.cpu()? - before;
    let gib = len as f64 / GIB;
    Ok([cpu.as_secs_f64() / gib, gib / wall.as_secs_f64()])
}

pub(crate) fn measure(options: &Options) -> io::Result<Section> {
    let ways = Way::of(Job::Relay);
    let bytes = noise(4 * PERIOD);
    let mut series: Vec<Series<2>> = ways.iter().map(|_| Series::default()).collect();
    for _ in 0..options.rounds {
        for (way, series) in ways.iter().zip(&mut series) {
            series.push(round(way, &bytes, options.relayed()).map_err(|e| way.problem(&e))?);
        }
    }
    let rows = ways.iter().zip(&series).map(|(way, series)| {
        let [cpu, rate] = series.medians();
        Row { way, cpu, least: series.least()[0], notes: vec![format!("{rate:.2}")] }
    });
    let title = format!("relay, {} MiB", options.relayed() >> 20);
    Ok(Section { title, unit: "s/GiB", columns: &["GiB/s"], rows: rows.collect() })
}
