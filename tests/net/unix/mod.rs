//! Unix sockets: their names, and their differences from TCP. `net::stream` tests the common behaviour.

mod names;
mod streams;

use std::convert::Infallible;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use millstream::body::FileBody;
use millstream::fs::File;
use millstream::metrics::Snapshot;
use millstream::net::{UnixListener, UnixStream};
use millstream::server::{RequestBody, serve};
use socket2::SockRef;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use testkit::family::Family;
use testkit::http::{Flavour, Raw, boxed, on_both, pages, sha256, watched};
use testkit::limits::drop_capabilities;
use testkit::tree::truncate;
use testkit::{lacks, noise};

fn name() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    (dir, path)
}
