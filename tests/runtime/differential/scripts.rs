//! The table of scripts. Each runs on tokio's stream and on ours, for both families, on both kinds of runtime, as the
//! future of `block_on` and as a task.

use std::io::ErrorKind;

use super::Subject;
use super::peer::{Bytes, End};
use super::script::Step::*;
use super::script::{Log, Outcome, Step, run};
use millstream::net;
use testkit::http::{Flavour, watched};

const SCRIPTS: &[(&str, &[Step])] = &[
    ("nothing", &[]),
    ("one write", &[Write(3)]),
    ("one write and a flush", &[Write(3), Flush, PeerRead(3)]),
    ("two writes, dropped at once", &[WriteAll(3), WriteAll(4)]),
    ("two writes and a flush, read before the drop", &[WriteAll(3), WriteAll(4), Flush, PeerRead(7)]),
    ("two writes without a flush, read before the drop", &[WriteAll(3), WriteAll(4), PeerRead(7)]),
    ("writes over several turns", &[WriteAll(10), Yield, WriteAll(10), Yield, Yield, WriteAll(10), PeerRead(30)]),
    ("pieces", &[Vectored(&[1, 20, 300]), Vectored(&[4000, 5]), PeerRead(4326)]),
    ("empty pieces among others", &[Vectored(&[0, 5, 0]), Vectored(&[0, 0]), Vectored(&[]), PeerRead(5)]),
    ("more pieces than one call takes", &[Vectored(&[1; 100]), WriteAll(3)]),
    ("a flush of nothing", &[Flush, Flush, Write(1), Flush]),
    ("an empty write", &[Write(0), WriteAll(0), Write(5), Write(0)]),
    ("an empty write behind the end", &[Shutdown, Write(0)]),
    ("an empty write to a peer that is gone", &[PeerReset, Gone, Write(0), Write(0)]),
    ("an empty read", &[PeerWrite(5), Read(0), Read(5)]),
    ("the end of nothing", &[Shutdown]),
    ("the end twice", &[Write(5), Shutdown, Shutdown]),
    ("the end while bytes wait", &[WriteAll(5), WriteAll(6), Shutdown, Drop]),
    ("a write behind the end", &[Write(5), Shutdown, Write(5), Write(5), Flush]),
    (
        "a write behind the end, and the answer",
        &[WriteAll(5), Shutdown, WriteAll(5), PeerRead(6), PeerWrite(9), PeerShutdown, ReadToEnd],
    ),
    ("the end, and a long answer", &[WriteAll(5), Shutdown, PeerRead(6), PeerWrite(50_000), PeerClose, ReadToEnd]),
    ("the peer ends, and is answered", &[PeerWrite(5), PeerShutdown, ReadToEnd, WriteAll(5), WriteAll(6), Shutdown]),
    ("the end is read twice", &[PeerWrite(5), PeerShutdown, ReadToEnd, ReadToEnd, Read(1)]),
    (
        "a question and its answer, three times",
        &[
            PeerWrite(5),
            Read(5),
            WriteAll(700),
            PeerRead(700),
            PeerWrite(5),
            Read(5),
            WriteAll(7),
            WriteAll(8),
            Flush,
            PeerRead(15),
            PeerWrite(3000),
            Read(3000),
            WriteAll(20_000),
            PeerRead(20_000),
        ],
    ),
    ("the peer closes", &[PeerClose, Gone, ReadToEnd, ReadToEnd]),
    (
        "the peer closes, and is written to",
        &[PeerClose, Gone, Write(5), Settle, Reset, Write(5), Settle, Write(5), Write(5)],
    ),
    ("the peer closes with bytes unread", &[WriteAll(5), Settle, PeerWait, PeerClose, Gone, ReadToEnd, ReadToEnd]),
    (
        "the peer closes with bytes unread, and is written to",
        &[WriteAll(5), Settle, PeerWait, PeerClose, Gone, Write(5), Settle, Write(5), ReadToEnd],
    ),
    ("the peer resets", &[PeerReset, Gone, ReadToEnd, ReadToEnd]),
    (
        "the peer resets behind an answer",
        &[PeerWrite(100), PeerReset, Gone, Read(100), ReadToEnd, Write(5), Settle, Write(5)],
    ),
    ("the peer resets, is read and written to", &[PeerReset, Gone, ReadToEnd, Write(5), Settle, Write(5), Flush]),
    (
        "the peer resets, and is written to and read",
        &[PeerReset, Gone, Write(5), Settle, Write(5), Write(5), ReadToEnd],
    ),
    ("the peer resets, and is written to once and read", &[PeerReset, Gone, Write(5), Settle, ReadToEnd, Write(5)]),
    ("the peer resets, and the stream is ended", &[PeerReset, Gone, Shutdown, Flush]),
    ("the peer closes, and the stream is ended", &[PeerClose, Gone, Flush, Shutdown, ReadToEnd]),
    (
        "the peer takes no more, and answers",
        &[
            PeerShutdownRead,
            WriteAll(5),
            Settle,
            PeerWrite(9),
            Read(9),
            WriteAll(5),
            Settle,
            PeerWrite(9),
            PeerShutdown,
            ReadToEnd,
        ],
    ),
    ("dropped with bytes unread", &[PeerWrite(5), WriteAll(3), Drop]),
    ("dropped with bytes unread, all sent", &[WriteAll(3), WriteAll(4), PeerRead(7), PeerWrite(5), Settle, Drop]),
    ("a reset by us", &[LingerZero, Drop]),
    ("a reset by us behind bytes", &[WriteAll(3), WriteAll(4), Flush, Settle, PeerRead(7), LingerZero, Drop]),
    ("a reset by us at once behind bytes", &[LingerZero, WriteAll(3), WriteAll(4), Drop]),
    ("full, dropped, then read", &[Narrow, Fill, Drop]),
    ("full, dropped with bytes unread", &[PeerWrite(5), Read(5), Narrow, Fill, Drop]),
    ("full, read, ended", &[Narrow, Fill, PeerReadAside, WriteAll(10_000), Shutdown]),
    ("full, and the peer resets", &[Narrow, Fill, PeerReset, Gone, ReadToEnd]),
    ("full of what the system allows, dropped, then read", &[Fill, Drop]),
    ("long, to a peer that reads", &[PeerReadAside, WriteAll(3 << 20), WriteAll(5), Shutdown]),
    ("long, dropped at once", &[PeerReadAside, WriteAll(3 << 20), WriteAll(5), Drop]),
    (
        "halves: the writer is dropped",
        &[Split, WriteAll(5), WriteAll(6), DropWriter, PeerWrite(9), Read(9), PeerRead(11)],
    ),
    ("halves: the reader is dropped", &[Split, DropReader, WriteAll(5), WriteAll(6), PeerRead(11)]),
    ("halves: both are dropped", &[Split, WriteAll(5), WriteAll(6), DropReader, DropWriter]),
    (
        "halves: the reader waits, the writer ends",
        &[Split, ReadAside, WriteAll(5), Shutdown, PeerRead(6), PeerWrite(9), PeerShutdown, Joined],
    ),
    (
        "halves: the reader waits, the writer fails",
        &[Split, ReadAside, WriteAll(5), Shutdown, WriteAll(5), PeerWrite(9), PeerShutdown, Joined],
    ),
    ("halves: the reader waits, the peer resets", &[Split, ReadAside, WriteAll(5), PeerRead(5), PeerReset, Joined]),
];

/// Scripts in which our stream accepts a write that fails on tokio's, and a later call returns the error, by family:
/// whether TCP. Calls in between succeed.
///
/// Writes are gathered because more may follow. Whether the peer still accepts bytes is known only when they are sent.
pub(crate) const DIFFERENCES: &[(&str, bool)] = &[
    ("the peer closes, and is written to", true),
    ("the peer closes with bytes unread, and is written to", true),
    ("the peer resets, and is written to and read", true),
    ("the peer resets, and is written to once and read", true),
    ("the peer closes, and is written to", false),
    ("the peer closes with bytes unread, and is written to", false),
    ("the peer resets, is read and written to", false),
    ("the peer resets, and is written to and read", false),
    ("the peer resets, and is written to once and read", false),
    ("the peer takes no more, and answers", false),
];

/// Checks that our stream has returned the error of tokio's later, and that nothing else differs.
fn later(tokio: &Log, ours: &Log) -> Result<(), &'static str> {
    let whole = |log: &Log| !matches!(log.seen.bytes, Bytes::Wrong { .. });
    let same = (tokio.seen.len, tokio.seen.end) == (ours.seen.len, ours.seen.end);
    if !same || tokio.seen.calls != ours.seen.calls || !whole(tokio) || !whole(ours) {
        return Err("the peer sees something else");
    }
    let pairs = || tokio.steps.iter().zip(&ours.steps);
    let first = pairs().position(|(a, b)| a != b).ok_or("they do not differ")?;
    let Outcome::Failed(kind) = tokio.steps[first].1 else { return Err("tokio's did not fail") };
    let told = ours.steps[first..].iter().position(|(_, outcome)| *outcome == Outcome::Failed(kind));
    let told = first + told.ok_or("the error is never returned")?;
    let fine = |outcome: &Outcome| !matches!(outcome, Outcome::Failed(_));
    if told == first || !ours.steps[first..told].iter().all(|(_, outcome)| fine(outcome)) {
        return Err("another error came first");
    }
    match pairs().skip(told + 1).all(|(a, b)| a == b) {
        true => Ok(()),
        false => Err("they differ after the error"),
    }
}

fn compare<T: Subject, S: Subject>(wrong: &mut Vec<String>) {
    for flavour in Flavour::BOTH {
        for spawned in [false, true] {
            for &(name, steps) in SCRIPTS {
                let (tokio, ours) = (play::<T>(flavour, spawned, steps), play::<S>(flavour, spawned, steps));
                let verdict = match DIFFERENCES.contains(&(name, S::TCP)) {
                    true => later(&tokio, &ours),
                    false if tokio == ours => Ok(()),
                    false => Err("they differ"),
                };
                let family = if S::TCP { "TCP" } else { "Unix" };
                if let Err(why) = verdict {
                    wrong.push(format!(
                        "{name} ({family}, {flavour:?}, spawned: {spawned}): {why}\n  tokio {tokio:?}\n  ours  {ours:?}"
                    ));
                }
                if [&tokio, &ours].iter().any(|log| log.seen.end == End::Hangs) {
                    wrong.push(format!("{name} ({family}, {flavour:?}): hangs"));
                }
            }
        }
    }
}

fn play<S: Subject>(flavour: Flavour, spawned: bool, steps: &'static [Step]) -> Log {
    let runtime = flavour.runtime();
    match spawned {
        true => runtime.block_on(async { tokio::spawn(run::<S>(steps)).await.unwrap() }),
        false => runtime.block_on(run::<S>(steps)),
    }
}

#[test]
fn tcp_streams_do_what_tokios_do() {
    watched(|| {
        let mut wrong = Vec::new();
        compare::<tokio::net::TcpStream, net::TcpStream>(&mut wrong);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn unix_streams_do_what_tokios_do() {
    watched(|| {
        let mut wrong = Vec::new();
        compare::<tokio::net::UnixStream, net::UnixStream>(&mut wrong);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// The table is long enough, and every difference names one of its scripts.
#[test]
fn the_table_is_whole() {
    assert!(SCRIPTS.len() >= 50, "{}", SCRIPTS.len());
    for (name, _) in DIFFERENCES {
        assert!(SCRIPTS.iter().any(|(script, _)| script == name), "{name}");
    }
    // The error kinds that the scripts produce.
    for kind in [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset] {
        let log = |outcomes: &[Outcome]| Log {
            steps: outcomes.iter().cloned().enumerate().collect(),
            seen: super::peer::Seen { len: 0, bytes: Bytes::All, end: End::Open, calls: Vec::new() },
        };
        let failed = || Outcome::Failed(kind);
        let tokio = log(&[Outcome::Wrote, failed(), failed(), failed()]);
        assert!(later(&tokio, &log(&[Outcome::Wrote, Outcome::Wrote, failed(), failed()])).is_ok());
        for ours in [
            [Outcome::Wrote, failed(), failed(), failed()],
            [Outcome::Wrote, Outcome::Wrote, Outcome::Wrote, Outcome::Wrote],
            [Outcome::Wrote, Outcome::Wrote, failed(), Outcome::Wrote],
        ] {
            assert!(later(&tokio, &log(&ours)).is_err(), "{ours:?}");
        }
    }
}
