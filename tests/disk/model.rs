//! A log against its model: a list of events, of which the oldest may be missing.

use std::fs;
use std::io::Write;
use std::time::Duration;

use millstream::sse::log::disk::Disk;
use proptest::prelude::*;

use crate::{close, forgetful, kept, reader, segments, send};
use testkit::http::Flavour;

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
enum Step {
    /// Sends events of these lengths, in one commit if possible.
    Send(Vec<usize>),
    /// Closes the log, leaves these bytes at its end as a torn commit would, and opens it.
    Restart(Vec<u8>),
    /// Reads everything from one place on, given as a part of the log.
    Read(f64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::vec(prop_oneof![0..200usize, 3000..6000usize], 1..30).prop_map(Step::Send),
        1 => prop::collection::vec(any::<u8>(), 0..50).prop_map(Step::Restart),
        2 => (0.0..=1.0).prop_map(Step::Read),
    ];
    prop::collection::vec(step, 1..25)
}

async fn check(steps: Vec<Step>, keep: usize) {
    let dir = tempfile::tempdir().unwrap();
    let open = async || Disk::builder(dir.path()).segment_bytes(0).keep_segments(keep).open().await.unwrap();
    let mut disk = open().await;
    let mut hub = forgetful(&disk);
    let mut model: Vec<String> = Vec::new();
    for step in steps {
        match step {
            Step::Send(lens) => {
                for len in lens {
                    model.push(format!("{} {}", model.len(), "y".repeat(len)));
                    send(&hub, model.last().unwrap());
                }
                disk.flush().await.unwrap();
            }
            Step::Restart(torn) => {
                close(hub, disk).await;
                let last = segments(dir.path()).pop().unwrap();
                fs::File::options().append(true).open(last).unwrap().write_all(&torn).unwrap();
                disk = open().await;
                assert_eq!(disk.state().cut, torn.len() as u64);
                hub = forgetful(&disk);
            }
            Step::Read(part) => {
                let from = (part * model.len() as f64) as usize;
                let first = disk.state().first as usize - 1;
                let mut reader = reader(&hub, &from.to_string());
                if from < first {
                    let missed = first - from;
                    assert_eq!(reader.next().await.data, format!("{{\"reason\":\"expired\",\"missed\":{missed}}}"));
                }
                let rest = &model[from.max(first)..];
                assert_eq!(reader.data(rest.len()).await, rest);
            }
        }
        let state = disk.state();
        assert_eq!((state.next, state.queued), (model.len() as u64 + 1, 0));
        let files = tokio::time::timeout(LIMIT, kept(&disk)).await.expect("old segments are removed");
        assert!(files.len() <= keep, "{state:?} {files:?}");
        let bytes: u64 = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert_eq!(state.bytes, bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn it_is_a_list_of_events(steps in steps(), keep in prop_oneof![1..4usize, Just(1000)]) {
        Flavour::CurrentThread.runtime().block_on(check(steps, keep));
    }
}
