//! Streams whose logs are in a directory, and which instances share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream::fs::Durability;
use millstream_resumable::{DiskStreams, StreamLogs};
use tempfile::TempDir;
use testkit::child;
use testkit::shared::{self, Place};

struct Directory(PathBuf);

impl Place for Directory {
    async fn logs(&self) -> Arc<dyn StreamLogs> {
        Arc::new(DiskStreams::open(&self.0, Durability::None).await.unwrap())
    }

    fn left(&self) -> usize {
        self.names().len()
    }

    fn names(&self) -> Vec<String> {
        let names = self.0.read_dir().unwrap();
        names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn place() -> (TempDir, Directory) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("streams");
    (dir, Directory(path))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_clients_get_the_bytes_of_an_undisturbed_one() {
    let (_dir, place) = place();
    shared::clients_move(&place, shared::moves_wanted()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_are_cancelled_after_the_last_reader_of_all_instances() {
    let (_dir, place) = place();
    shared::abandoned_in_time(&place, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_start_one_producer() {
    let (_dir, place) = place();
    shared::one_producer(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_instance_stops_a_stream() {
    let (_dir, place) = place();
    shared::stops_reach_the_writer(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_owner_finds_nothing_in_the_log() {
    let (_dir, place) = place();
    shared::owners_are_apart(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_process_has_the_events_and_the_end() {
    let (_dir, place) = place();
    shared::ends_are_durable(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_file_is_left_after_the_time_to_live() {
    let (_dir, place) = place();
    shared::streams_are_forgotten(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_instance_continues_after_a_death() {
    let (_dir, place) = place();
    shared::continued_after_death(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_nobody_continues_fails() {
    let (_dir, place) = place();
    shared::orphans_fail(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_leave_whole_streams() {
    if let Some(task) = child::task() {
        let (path, round) = task.split_once('#').unwrap();
        return shared::killed_writer(&Directory(Path::new(path).to_owned()), round).await;
    }
    let (_dir, place) = place();
    let path = place.0.to_str().unwrap();
    shared::killed_writers(&place, "disk::killed_processes_leave_whole_streams", path).await;
}
