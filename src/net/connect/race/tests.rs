//! Unit tests of `race`.

use super::*;
use tokio::time::{Instant, sleep};

fn v4(n: u8) -> SocketAddr {
    ([10, 0, 0, n], 80).into()
}

fn v6(n: u16) -> SocketAddr {
    ([0, 0, 0, 0, 0, 0, 0, n], 80).into()
}

#[test]
fn families_take_turns() {
    assert_eq!(in_turns([v6(1), v6(2), v4(1), v4(2), v4(3)]), [v6(1), v4(1), v6(2), v4(2), v4(3)]);
    assert_eq!(in_turns([v4(1), v4(2), v6(1)]), [v4(1), v6(1), v4(2)]);
    assert_eq!(in_turns([]), []);
}

async fn after(ms: u64, fine: bool) -> io::Result<u64> {
    sleep(Duration::from_millis(ms)).await;
    if fine { Ok(ms) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
}

async fn run(plan: &'static [(u64, bool)]) -> (Option<u64>, Duration, Tried) {
    let (since, mut tried) = (Instant::now(), Tried::new());
    let addrs = (0..plan.len()).map(|n| v4(n as u8)).collect();
    let winner = race(addrs, &mut tried, |addr| {
        let SocketAddr::V4(addr) = addr else { unreachable!() };
        let (ms, fine) = plan[usize::from(addr.ip().octets()[3])];
        after(ms, fine)
    });
    let winner = winner.await.map(|(_, took)| took);
    (winner, since.elapsed(), tried)
}

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn the_first_that_answers_wins() {
    let (winner, took, tried) = run(&[(249, true), (1, true)]).await;
    assert_eq!((winner, took, tried.len()), (Some(249), 249 * MS, 1), "the first won within its head start");
    let (winner, took, tried) = run(&[(10_000, true), (10, true), (1, true)]).await;
    assert_eq!((winner, took, tried.len()), (Some(10), 260 * MS, 2));
    let (winner, took, _) = run(&[(300, true), (200, true)]).await;
    assert_eq!((winner, took), (Some(300), 300 * MS), "the first attempt still runs");
    let (winner, took, tried) = run(&[(5, false), (7, false), (3, true)]).await;
    assert_eq!((winner, took), (Some(3), 15 * MS), "a failure starts the next at once");
    assert!(tried[0].1.is_some() && tried[1].1.is_some() && tried[2].1.is_none());
    let (winner, took, tried) = run(&[(400, false), (300, false)]).await;
    assert_eq!((winner, took), (None, 550 * MS));
    assert!(tried.iter().all(|(_, error)| error.is_some()));
    assert_eq!(run(&[]).await.0, None);
}

#[tokio::test(start_paused = true)]
async fn a_race_that_is_given_up_says_how_far_it_came() {
    let mut tried = Tried::new();
    let race = race(vec![v4(1), v4(2)], &mut tried, |addr| after(if addr == v4(1) { 10 } else { 10_000 }, false));
    assert!(timeout(1000 * MS, race).await.is_err());
    assert!(tried[0].1.is_some() && tried[1].1.is_none());
}
