//! The matrix: all cells, and those of a plan.

use super::cell::{Arrivals, Behind, Cell, Work};
use super::plan::Plan;
use crate::load::Protocol;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Returns the cells of a plan.
pub(super) fn matrix(plan: &Plan, cpus: usize) -> Vec<Cell> {
    let cells = if plan.sweep { sweep(cpus) } else { whole(cpus) };
    let quick = |cell: &Cell| !plan.quick || if plan.sweep { cell.workers == 1 } else { QUICK.contains(&&*cell.name) };
    let wanted = |cell: &Cell| plan.only.is_empty() || plan.only.iter().any(|only| cell.name.contains(only.as_str()));
    cells.into_iter().filter(|cell| quick(cell) && wanted(cell)).collect()
}

/// Cells of `--quick`.
const QUICK: [&str; 18] = [
    "json/64",
    "files/1k",
    "files/64k",
    "files/1m",
    "tokens/1",
    "tokens/64",
    "tokens/1000",
    "events/100",
    "events/500",
    "uploads/1m",
    "relay/1m",
    "proxy/1m",
    "http2/64k",
    "http2/tokens",
    "tls/64k",
    "connections/1",
    "connections/100",
    "connections/1000",
];

fn whole(cpus: usize) -> Vec<Cell> {
    use Protocol::{H2, TlsH1, TlsH2};
    use Work::{Events, File, Handshake, Hello, Paced, Proxy, ProxyToTls, Relay, Tokens, Upload};
    let mut cells = vec![
        Cell::new("json/1", Hello, 1),
        Cell::new("json/64", Hello, 64),
        Cell::new("files/1k", File(KIB), 64),
        Cell::new("files/10k", File(10 * KIB), 64),
        Cell::new("files/64k", File(64 * KIB), 64),
        Cell::new("files/1m", File(MIB), 16),
        Cell::new("files/16m", File(16 * MIB), 8),
        Cell::new("files/1g", File(1024 * MIB), 2),
        Cell::new("tokens/1", Tokens, 1),
        Cell::new("tokens/10", Tokens, 10),
        Cell::new("tokens/64", Tokens, 64),
        Cell::new("tokens/1000", Tokens, 1000),
        Cell::new("tokens/10000", Tokens, 10_000),
        Cell::new("paced/64", Paced, 64),
        Cell::new("paced/200", Paced, 200),
        Cell::new("paced/1000", Paced, 1000),
        Cell::new("paced/10000", Paced, 10_000),
        Cell::new("paced/http2", Paced, 4).over(H2, 16),
        Cell::new("paced/tls", Paced, 64).over(TlsH1, 1),
        // A third to a half of what the stock server reaches on two CPUs of a cloud's virtual machine.
        Cell::new("rate/json", Hello, 64).arriving(Arrivals::Open(30_000)),
        Cell::new("rate/10k", File(10 * KIB), 64).arriving(Arrivals::Open(4000)),
        Cell::new("rate/tokens", Tokens, 64).arriving(Arrivals::Open(600)),
        Cell::new("churn/json", Hello, 16).arriving(Arrivals::Churn),
        Cell::new("rest/5000", Hello, 5000).arriving(Arrivals::Once),
        Cell::new("events/1", Events(1000), 1),
        Cell::new("events/10", Events(500), 10),
        Cell::new("events/100", Events(100), 100),
        Cell::new("events/500", Events(50), 500),
        Cell::new("events/5000", Events(10), 5000),
        Cell::new("events/10000", Events(5), 10_000),
        Cell::new("uploads/64k", Upload(64 * KIB), 16),
        Cell::new("uploads/1m", Upload(MIB), 16),
        Cell::new("uploads/64m", Upload(64 * MIB), 4),
        Cell::new("relay/64k", Relay(64 * KIB), 16),
        Cell::new("relay/1m", Relay(MIB), 16),
        Cell::new("relay/64m", Relay(64 * MIB), 4),
        Cell::new("proxy/json", Proxy(Behind::Hello), 64),
        Cell::new("proxy/1m", Proxy(Behind::File(MIB)), 16),
        Cell::new("proxy/tokens", Proxy(Behind::Tokens), 64),
        Cell::new("proxy/tls-json", ProxyToTls(Behind::Hello), 64),
        Cell::new("proxy/tls-1m", ProxyToTls(Behind::File(MIB)), 16),
        Cell::new("http2/json", Hello, 4).over(H2, 16),
        Cell::new("http2/64k", File(64 * KIB), 4).over(H2, 16),
        Cell::new("http2/16m", File(16 * MIB), 2).over(H2, 4),
        Cell::new("http2/tokens", Tokens, 4).over(H2, 16),
        Cell::new("tls/handshakes", Handshake { resumed: false }, 16).over(TlsH1, 1),
        Cell::new("tls/resumed", Handshake { resumed: true }, 16).over(TlsH1, 1),
        Cell::new("tls/1k", File(KIB), 64).over(TlsH1, 1),
        Cell::new("tls/10k", File(10 * KIB), 64).over(TlsH1, 1),
        Cell::new("tls/64k", File(64 * KIB), 64).over(TlsH1, 1),
        Cell::new("tls/16m", File(16 * MIB), 4).over(TlsH1, 1),
        Cell::new("tls/100m", File(100 * MIB), 2).over(TlsH1, 1),
        Cell::new("tls/tokens", Tokens, 64).over(TlsH1, 1),
        Cell::new("tls/upload-1m", Upload(MIB), 16).over(TlsH1, 1),
        Cell::new("tls/upload-64m", Upload(64 * MIB), 4).over(TlsH1, 1),
        Cell::new("tls/http2-64k", File(64 * KIB), 4).over(TlsH2, 16),
    ];
    cells.extend(
        [1, 10, 100, 1000, 10_000].map(|count| Cell::new(format!("connections/{count}"), File(10 * KIB), count)),
    );
    cells.extend(workers(cpus).map(|count| Cell::new(format!("workers/{count}"), File(10 * KIB), 64).workers(count)));
    cells
}

/// Cells whose frontier shows what a setting changes.
fn sweep(cpus: usize) -> Vec<Cell> {
    let mut cells = vec![
        Cell::new("files/64k", Work::File(64 * KIB), 64),
        Cell::new("files/16m", Work::File(16 * MIB), 8),
        Cell::new("tokens/1", Work::Tokens, 1),
        Cell::new("tokens/64", Work::Tokens, 64),
        Cell::new("http2/tokens", Work::Tokens, 4).over(Protocol::H2, 16),
        Cell::new("events/500", Work::Events(50), 500),
    ];
    let more = workers(cpus).filter(|&count| count > 1);
    cells.extend(more.map(|count| Cell::new(format!("workers/{count}"), Work::File(10 * KIB), 64).workers(count)));
    cells
}

/// Returns 1, 2, 4 … and the number of CPUs.
fn workers(cpus: usize) -> impl Iterator<Item = u32> {
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let powers = std::iter::successors(Some(1u32), |n| n.checked_mul(2)).take_while(move |&n| n < cpus);
    powers.chain([cpus])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own_and_the_quick_ones_exist() {
        let plan = |quick, sweep| Plan { quick, sweep, ..Plan::default() };
        for cpus in [1, 2, 3, 96] {
            let cells = matrix(&plan(false, false), cpus);
            let mut names: Vec<_> = cells.iter().map(|cell| cell.name.clone()).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), cells.len());
            assert_eq!(matrix(&plan(true, false), cpus).len(), QUICK.len());
            assert!(!matrix(&plan(true, true), cpus).is_empty());
        }
        assert_eq!(workers(6).collect::<Vec<_>>(), [1, 2, 4, 6]);
        assert_eq!(workers(1).collect::<Vec<_>>(), [1]);
        // The load of an open loop, of new connections and of idle ones speaks HTTP/1.1 without TLS.
        let plain = |cell: &Cell| cell.protocol == Protocol::H1;
        assert!(whole(2).iter().all(|cell| cell.arrivals == Arrivals::Closed || plain(cell)));
        let only = Plan { only: vec!["tls/".to_owned(), "files/1k".to_owned()], ..Plan::default() };
        assert!(matrix(&only, 2).iter().all(|cell| cell.family() == "tls" || cell.name == "files/1k"));
    }
}
