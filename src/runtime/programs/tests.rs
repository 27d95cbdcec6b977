//! Unit tests of `programs`.

use super::*;
use crate::ops::rw::{Read, Write};
use crate::runtime::DriverBuilder;
use bytes::Bytes;

fn file() -> Arc<std::fs::File> {
    Arc::new(tempfile::tempfile().unwrap())
}

async fn round_trip() {
    let file = file();
    let bytes = Bytes::from(vec![7; 100_000]);
    let write =
        run(Box::new(Program::of(Write::new(file.clone().into(), 5, bytes.clone()))), Alone::Ring).await.unwrap();
    assert_eq!(write.into_single::<Write>().1.unwrap(), 100_000);
    let read = run(Box::new(Program::of(Read::new(file.into(), 5, 200_000))), Alone::Ring).await.unwrap();
    assert_eq!(read.outcome(0), StepOutcome::Short(100_000));
    assert_eq!(read.into_single::<Read>().0.into_bytes(), bytes);
}

#[tokio::test]
async fn both_ways_give_the_same() {
    for io in [Io::Uring, Io::Epoll] {
        tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                DriverBuilder::new().io(io).install().unwrap();
                round_trip().await;
            });
        })
        .await
        .unwrap();
    }
}

#[test]
fn without_an_io_driver_the_pool_takes_over() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(round_trip());
}
