//! Unix sockets: their names, and their differences from TCP. `net::stream` tests the common behaviour.

mod names;
#[cfg(all(feature = "fs", feature = "server"))]
mod served;
mod streams;

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream::net::{UnixListener, UnixStream};
use socket2::SockRef;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use testkit::family::Family;
use testkit::http::watched;

fn name() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    (dir, path)
}
