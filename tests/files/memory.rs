//! A long download costs the server no memory, even with a slow reader.
//!
//! The server is a child process of this program.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use millstream::files::Files;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;

use testkit::http::{Flavour, Raw, ask, pages, start, watched};
use testkit::served::{Server, until_ended};
use testkit::{child, lacks};

const DIR: &str = "MILLSTREAM_TEST_SERVED_DIR";
const NAME: &str = "memory::a_download_of_100_mib_costs_the_server_less_than_8";

const MIB: usize = 1 << 20;
const FILE: usize = 100 * MIB;
/// Repeated part of the file.
const BLOCK: usize = 4 * MIB;
/// Maximum growth of the server's memory in KiB.
const GROWTH: u64 = 8 << 10;

#[test]
fn a_download_of_100_mib_costs_the_server_less_than_8() {
    if lacks("sendfile") {
        return;
    }
    if let Some(flavour) = child::task() {
        return serve(Path::new(&std::env::var_os(DIR).unwrap()), flavour.parse().unwrap());
    }
    watched(|| {
        let dir = tempfile::tempdir().unwrap();
        let block = pages(BLOCK);
        let mut file = std::fs::File::create(dir.path().join("large")).unwrap();
        for _ in 0..FILE / BLOCK {
            file.write_all(&block).unwrap();
        }
        std::fs::write(dir.path().join("warm"), &block).unwrap();
        for flavour in 0..Flavour::BOTH.len() {
            let mut server = Server::start(child::command(NAME, &flavour.to_string()).env(DIR, dir.path()));
            let runtime = Flavour::CurrentThread.runtime();
            // One-time set-up is not growth.
            runtime.block_on(download(server.addr, "/warm", &block, true));
            for slow in [false, true] {
                let before = server.memory();
                runtime.block_on(download(server.addr, "/large", &block, slow));
                let after = server.memory();
                let growth = after["VmHWM"].saturating_sub(before["VmRSS"]);
                println!("{:?}, slow {slow}: peak {growth} KiB above {before:?}", Flavour::BOTH[flavour]);
                assert!(growth < GROWTH, "{before:?} {after:?}");
            }
            server.end();
        }
    });
}

/// Serves `dir` until standard input ends.
fn serve(dir: &Path, flavour: usize) {
    Flavour::BOTH[flavour].runtime().block_on(async {
        let files = Files::new(dir).unwrap();
        let addr = start(move |request| {
            let files = files.clone();
            async move { ask(&files, &request, |body| body).await }
        })
        .await;
        until_ended(addr).await;
    });
}

/// Downloads and compares a file of repeated blocks.
async fn download(addr: SocketAddr, path: &str, block: &[u8], slow: bool) {
    let socket = TcpSocket::new_v4().unwrap();
    if slow {
        socket.set_recv_buffer_size(32 << 10).unwrap();
    }
    let mut client = Raw::over(socket.connect(addr).await.unwrap());
    client.ask(path).await;
    let len = client.head().await.content_length();
    let first = client.buffered();
    assert!(block.starts_with(&first));
    let mut at = first.len();
    let mut buf = vec![0; 64 << 10];
    while at < len {
        let offset = at % BLOCK;
        let room = buf.len().min(BLOCK - offset);
        let n = client.io.read(&mut buf[..room]).await.unwrap();
        assert!(n > 0 && buf[..n] == block[offset..offset + n], "wrong bytes at {at}");
        // A slow reader pauses now and then.
        if slow && (at + n) / (256 << 10) > at / (256 << 10) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        at += n;
    }
    assert_eq!(at, len);
}
