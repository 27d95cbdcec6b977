//! The directory that is served, and the end of the program.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use clap::Parser;
use millstream::net::TcpListener;
use millstream_layers::AllowedHostsLayer;
use testkit::alone;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::{App, Args, Numbers, cli, until_interrupted};

/// The server of this example, and what lives as long as it does.
struct Server {
    address: SocketAddr,
    app: Arc<App>,
    ended: JoinHandle<std::io::Result<()>>,
    runtime: Runtime,
    _numbers: Numbers,
}

impl Server {
    fn start(root: &Path) -> Self {
        let Args { options, site, uploads, metrics, .. } =
            Args::parse_from([Path::new("serve"), "--root".as_ref(), root]);
        let hosts = AllowedHostsLayer::local();
        let numbers = Numbers::start(metrics, false, hosts.clone(), async |live| Ok(live.build())).unwrap();
        let app = App::new(&options, &site, &uploads, &numbers, hosts).unwrap();
        let runtime = cli::runtime(NonZeroUsize::new(2).unwrap()).unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let ended = runtime.spawn(until_interrupted(listener, Arc::clone(&app)));
        Self { address, app, ended, runtime, _numbers: numbers }
    }

    fn ask(&self, path: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        client
    }

    fn get(&self, path: &str) -> String {
        let mut answer = String::new();
        self.ask(path).read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn a_root_that_is_a_link_may_be_switched() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, link) = (dir.path(), dir.path().join("current"));
    for release in ["one", "two"] {
        std::fs::create_dir(dir.join(release)).unwrap();
        std::fs::write(dir.join(release).join("release"), release).unwrap();
        std::fs::write(dir.join(release).join(format!("only-in-{release}")), release).unwrap();
    }
    std::os::unix::fs::symlink("one", &link).unwrap();
    let server = Server::start(&link);
    assert!(server.get("/f/release").ends_with("\r\n\r\none"));
    assert!(server.get("/").contains("only-in-one"));

    std::os::unix::fs::symlink("two", dir.join("new")).unwrap();
    std::fs::rename(dir.join("new"), &link).unwrap();
    // As the first request does a second later.
    server.app.files.reopen().unwrap();
    assert!(server.get("/f/release").ends_with("\r\n\r\ntwo"));
    assert!(server.get("/").contains("only-in-two"));
}

#[test]
fn a_signal_ends_the_events_in_order() {
    if alone::ran_in_child() {
        return;
    }
    let server = Server::start(Path::new("."));
    let mut client = server.ask("/events?hz=1");
    let mut answer = vec![0; 200];
    client.read_exact(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
    client.read_to_end(&mut answer).expect("an end, and no reset");
    assert!(answer.ends_with(b"\r\n0\r\n\r\n"), "{}", answer.escape_ascii());
    server.runtime.block_on(server.ended).unwrap().unwrap();
}
