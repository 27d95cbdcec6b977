//! A process that is killed while it appends: nothing confirmed is lost, nothing is there twice, nothing is invented.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::{contents, hub, send, small};
use testkit::child;
use testkit::http::Flavour;

const NAME: &str = "killed::what_was_confirmed_is_there";
const KILLS: usize = 40;

/// In the child: sends numbers from the next one on, in bursts, and prints what is confirmed.
async fn append(dir: &str) {
    let disk = small(dir.as_ref()).open().await.unwrap();
    let hub = hub(&disk);
    let mut next = disk.state().next - 1;
    for burst in 0.. {
        for _ in 0..burst % 40 + 1 {
            send(&hub, format!("{next} {}", "x".repeat((next % 90) as usize)));
            next += 1;
        }
        disk.flush().await.unwrap();
        println!("\nconfirmed {next}");
    }
}

#[test]
fn what_was_confirmed_is_there() {
    if let Some(dir) = child::task() {
        return Flavour::TwoWorkers.runtime().block_on(append(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut confirmed = 0;
    let mut more_than_confirmed = 0;
    for round in 0..KILLS {
        let mut command = child::command(NAME, dir.path().to_str().unwrap());
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines.filter_map(|line| line.unwrap().strip_prefix("confirmed ")?.parse::<u64>().ok());
        // Killed during the burst after this one, or while the log is opened.
        let last = told.take(round * 7 % 23 + 1).last();
        child.kill().unwrap();
        child.wait().unwrap();
        confirmed = last.expect("it has confirmed something").max(confirmed);
        let found = Flavour::CurrentThread.runtime().block_on(async {
            let disk = small(dir.path()).open().await.unwrap();
            disk.state().next - 1
        });
        assert!(found >= confirmed, "round {round}: {found} of {confirmed} events are there");
        more_than_confirmed += u64::from(found > confirmed);
        confirmed = found;
    }
    println!("{more_than_confirmed} of {KILLS} were killed behind a commit that was not confirmed");
    let all = Flavour::CurrentThread.runtime().block_on(async {
        let disk = small(dir.path()).open().await.unwrap();
        contents(&disk).await
    });
    assert_eq!(all.len() as u64, confirmed);
    for (n, data) in all.iter().enumerate() {
        assert_eq!(*data, format!("{n} {}", "x".repeat(n % 90)));
    }
}
