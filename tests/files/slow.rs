//! File systems that query a process or a server: an open or a read that waits for them blocks no other task on the same
//! thread.

use std::future::Future;
use std::sync::Arc;

use millstream::files::Files;
use millstream::fs::{File, Root};
use millstream::runtime::DriverBuilder;

use crate::{Path, get};
use testkit::fuse::{CONTENTS, Fuse, NAME};
use testkit::http::{Flavour, watched};
use testkit::ways::WAYS;

/// Runs `open` while its open waits. Another task of the same thread lets it through.
fn others_run_meanwhile<F: Future<Output = Vec<u8>>>(open: impl Fn(Arc<Fuse>) -> F + Send + 'static) {
    watched(move || {
        let Some(fuse) = Fuse::mount() else { return };
        let fuse = Arc::new(fuse);
        Flavour::CurrentThread.runtime().block_on(async {
            // The kernel knows the name from now on.
            assert_eq!(open(Arc::clone(&fuse)).await, CONTENTS);
            let gatekeeper = fuse.gate();
            let other = tokio::spawn(async {
                tokio::task::spawn_blocking(|| gatekeeper.let_through()).await.unwrap();
            });
            assert_eq!(open(Arc::clone(&fuse)).await, CONTENTS);
            other.await.unwrap();
        });
    });
}

#[test]
fn a_file_is_opened() {
    others_run_meanwhile(async |fuse| File::open(fuse.file()).await.unwrap().read_at(0, 100).await.unwrap().to_vec());
}

/// Reads a file while its read waits. Another task of the same thread runs then, and lets it through.
fn others_run_while_it_is_read<F: Future<Output = File>>(open: impl Fn(Arc<Fuse>) -> F + Copy + Send + 'static) {
    watched(move || {
        for io in WAYS {
            let Some(fuse) = Fuse::mount() else { return };
            let fuse = Arc::new(fuse);
            Flavour::CurrentThread.runtime().block_on(async {
                DriverBuilder::new().io(io).install().unwrap();
                let file = open(Arc::clone(&fuse)).await;
                let gatekeeper = fuse.gate_reads();
                let other = tokio::spawn(async {
                    tokio::task::spawn_blocking(|| gatekeeper.await_request()).await.unwrap().open();
                });
                assert_eq!(file.read_at(0, 100).await.unwrap(), CONTENTS, "{io}");
                other.await.unwrap();
            });
        }
    });
}

#[test]
fn a_file_is_read() {
    others_run_while_it_is_read(async |fuse| File::open(fuse.file()).await.unwrap());
}

#[test]
fn a_file_beneath_a_directory_is_read() {
    others_run_while_it_is_read(async |fuse| Root::open_dir(fuse.path()).unwrap().open(NAME).await.unwrap());
}

#[test]
fn a_file_beneath_a_directory_is_opened() {
    others_run_meanwhile(async |fuse| {
        let file = Root::open_dir(fuse.path()).unwrap().open(NAME).await.unwrap();
        file.read_at(0, 100).await.unwrap().to_vec()
    });
}

#[test]
fn a_file_on_a_mount_beneath_a_directory_is_opened() {
    others_run_meanwhile(async |fuse| {
        let (above, name) = (fuse.path().parent().unwrap(), fuse.path().file_name().unwrap());
        let root = Root::open_dir(above).unwrap();
        let file = root.open(Path::new(name).join(NAME)).await.unwrap();
        file.read_at(0, 100).await.unwrap().to_vec()
    });
}

#[test]
fn a_file_is_served() {
    others_run_meanwhile(async |fuse| get(&Files::new(fuse.path()).unwrap(), &format!("/{NAME}"), &[]).await.bytes);
}
