//! A redis-server for tests, and a relay in front of it that can delay responses and cut connections.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use testkit::{HANGS, Reserved, skip};

/// Kills the server, by its pid, when standard input ends, which happens however this process ends.
const GUARD: &str = r#""$@" >>log 2>&1 & echo $!; read _; kill -9 $! 2>/dev/null; wait"#;

/// A redis-server on a port of 127.0.0.1, with its files in a temporary directory.
#[derive(Debug)]
pub(crate) struct Server {
    dir: TempDir,
    reserved: Reserved,
    options: Vec<String>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    guard: Child,
    pid: Pid,
}

impl Server {
    /// Starts a server. Reports a skip and returns `None` without a redis-server. Nothing is kept on disk unless
    /// `options` enable it.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        if let Err(e) = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status() {
            skip("redis-server", e);
            return None;
        }
        let dir = TempDir::with_prefix("millstream-redis-").unwrap();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self { dir, reserved: Reserved::new(), options, running: None };
        server.run();
        Some(server)
    }

    /// Starts the server, again on the same port.
    #[expect(clippy::disallowed_methods, reason = "polls for the start of the server outside of a runtime")]
    pub(crate) fn run(&mut self) {
        let deadline = Instant::now() + HANGS;
        self.spawn();
        while !self.answers() {
            let log = self.log();
            let ended = log.lines().next_back().is_some_and(|last| last.contains("exit") || last.contains("aborting"));
            assert!(!ended && Instant::now() < deadline, "no redis-server:\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn spawn(&mut self) {
        let mut command = Command::new("sh");
        command.current_dir(&self.dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.args(["-c", GUARD, "sh", "redis-server", "--port"]).arg(self.addr().port().to_string());
        command.args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]).args(&self.options);
        let mut guard = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(guard.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        self.running = Some(Running { guard, pid });
    }

    fn answers(&self) -> bool {
        let answer = redis::Client::open(self.url())
            .and_then(|client| client.get_connection_with_timeout(Duration::from_secs(1)))
            .and_then(|mut connection| redis::cmd("INFO").arg("server").query::<String>(&mut connection));
        match answer {
            Ok(_) => true,
            Err(e) => matches!(e.code(), Some("NOAUTH" | "NOPERM")),
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn pid(&self) -> Pid {
        self.running.as_ref().expect("it runs").pid
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr())
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.reserved.addr
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn kill(&mut self) {
        let Some(Running { mut guard, .. }) = self.running.take() else { return };
        // The guard's end of the pipe.
        drop(guard.stdin.take());
        guard.wait().unwrap();
    }

    /// Stops the process until [`wake`](Self::wake).
    pub(crate) fn freeze(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
    }

    pub(crate) fn wake(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    pub(crate) fn command(&self, command: &[&str]) -> redis::Value {
        let mut connection = redis::Client::open(self.url()).unwrap().get_connection().unwrap();
        let mut cmd = redis::cmd(command[0]);
        cmd.arg(&command[1..]);
        cmd.query(&mut connection).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- redis-server said:\n{}", self.log());
        }
    }
}

/// Behaviour of a [`Relay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// Holds responses back.
    HoldAnswers,
    /// Drops the next response to a MULTI and cuts its connection: the commands ran, but no client knows.
    CutAfter,
    /// Drops the next MULTI and cuts its connection: the commands did not run.
    CutBefore,
    /// Keeps the next MULTI even if its client disconnects, and changes the mode to `Kept`.
    Keep,
    /// Forwards the kept MULTI, on its connection to the server, when the mode changes to `Pass`.
    Kept,
}

#[derive(Clone, Debug)]
pub(crate) struct Relay {
    addr: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
}

impl Relay {
    pub(crate) async fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, to) = (listener.local_addr().unwrap(), server.addr());
        let mode = Arc::new(watch::Sender::new(Mode::Pass));
        let relay = Self { addr, mode: Arc::clone(&mode) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Connections may end in any way.
                tokio::spawn(pass(client, to, Arc::clone(&mode)));
            }
        });
        relay
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Waits until the mode changes to `mode`.
    pub(crate) async fn becomes(&self, mode: Mode) {
        self.mode.subscribe().wait_for(|&is| is == mode).await.unwrap();
    }
}

async fn pass(mut client: TcpStream, to: SocketAddr, mode: Arc<watch::Sender<Mode>>) -> std::io::Result<()> {
    let mut server = TcpStream::connect(to).await?;
    let (mut request, mut answer) = ([0; 16 << 10], [0; 16 << 10]);
    let mut watch = mode.subscribe();
    // Whether the response to a MULTI of this connection must be dropped.
    let mut doomed = false;
    loop {
        let holds = *watch.borrow_and_update() == Mode::HoldAnswers;
        tokio::select! {
            n = client.read(&mut request) => {
                let n = n?;
                let multi = request[..n].windows(5).any(|word| word == b"MULTI");
                let now = *mode.borrow();
                if n == 0 || (multi && now == Mode::CutBefore) {
                    mode.send_if_modified(|mode| n > 0 && std::mem::replace(mode, Mode::Pass) != Mode::Pass);
                    return Ok(());
                }
                if multi && now == Mode::Keep {
                    mode.send_replace(Mode::Kept);
                    watch.wait_for(|&mode| mode == Mode::Pass).await.ok();
                    server.write_all(&request[..n]).await?;
                    // The server may end the connection first.
                    client.shutdown().await?;
                    server.shutdown().await?;
                    while server.read(&mut answer).await? > 0 {}
                    return Ok(());
                }
                doomed |= multi && now == Mode::CutAfter;
                server.write_all(&request[..n]).await?;
            }
            n = server.read(&mut answer), if !holds => {
                let n = n?;
                if n == 0 || (doomed && answer[..n].contains(&b'*')) {
                    mode.send_if_modified(|mode| n > 0 && std::mem::replace(mode, Mode::Pass) != Mode::Pass);
                    return Ok(());
                }
                if !doomed {
                    client.write_all(&answer[..n]).await?;
                }
            }
            changed = watch.changed() => if changed.is_err() { return Ok(()) },
        }
    }
}
