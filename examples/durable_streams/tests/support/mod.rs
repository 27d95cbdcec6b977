//! Starts the server, and asks it by HTTP/1.1.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// Time that only a hang takes, on a busy machine too.
pub(crate) const HANGS: Duration = Duration::from_secs(60);
/// Segments of this size in MiB.
const JOURNAL: &str = "8";

/// The command of a server whose long polls wait for so many seconds.
fn command(dir: &Path, long_poll: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_durable_streams"));
    command.args(["--listen", "127.0.0.1:0", "--journal", JOURNAL, "--max-body", "1"]);
    command.args(["--local-webhooks", "--long-poll", long_poll, "--dir"]).arg(dir);
    command
}

/// Runs a server that cannot start, and returns its errors.
#[allow(dead_code, reason = "not every program needs it")]
pub(crate) fn refused(dir: &Path) -> String {
    let mut child = command(dir, "1").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..600 {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(!status.success());
            let mut text = String::new();
            child.stderr.unwrap().read_to_string(&mut text).unwrap();
            return text;
        }
        pause(Duration::from_millis(100));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("the server has started");
}

#[expect(clippy::disallowed_methods, reason = "tests have no runtime")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

impl Server {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_with(dir, Stdio::inherit())
    }

    /// Starts a server whose long polls outlast a test.
    #[allow(dead_code, reason = "not every program needs it")]
    pub(crate) fn start_patient(dir: &Path) -> Self {
        Self::run(command(dir, "3600").stderr(Stdio::inherit()))
    }

    /// Starts a server whose errors go to `errors`.
    pub(crate) fn start_with(dir: &Path, errors: Stdio) -> Self {
        Self::run(command(dir, "1").stderr(errors))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            output.read_line(&mut line).map(|_| sender.send(line))
        });
        let line = lines.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| {
            child.kill().unwrap();
            panic!("the start takes too long")
        });
        let address = line.strip_prefix("http://").and_then(|line| line.split('/').next());
        let address = address.unwrap_or_else(|| panic!("no address: {line:?}")).parse().unwrap();
        Self { child, address }
    }

    /// Ends the process at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the process as an operator does.
    #[allow(dead_code, reason = "not every program needs it")]
    pub(crate) fn stop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn ask(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        Client::new(self.address).ask(method, path, fields, body).expect("an answer")
    }

    /// Reads a stream from its beginning.
    pub(crate) fn read(&self, path: &str) -> Vec<u8> {
        let (mut all, mut offset) = (Vec::new(), "-1".to_owned());
        loop {
            let answer = self.ask("GET", &format!("{path}?offset={offset}"), &[], b"");
            assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
            all.extend_from_slice(&answer.body);
            if answer.headers.contains_key("stream-up-to-date") {
                return all;
            }
            offset = answer.headers["stream-next-offset"].clone();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(HANGS)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Returns the next line of an answer without a length.
    #[allow(dead_code, reason = "not every program needs it")]
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// Sends a request. Returns `None` if the server ends before it has answered.
    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Option<Answer> {
        self.send(method, path, fields, body)?;
        self.answer(method)
    }

    /// Sends a request. Returns `None` if the server has ended.
    pub(crate) fn send(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Option<()> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        self.0.get_mut().write_all(&[(head + "\r\n").as_bytes(), body].concat()).ok()
    }

    /// Reads the answer to a request. Returns `None` if the server has ended before it.
    pub(crate) fn answer(&mut self, method: &str) -> Option<Answer> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok()?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = HashMap::new();
        loop {
            line.clear();
            self.0.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_owned(), value.to_owned());
        }
        let len = headers.get("content-length").map_or(0, |len| len.parse().unwrap());
        let mut body = vec![0; if method == "HEAD" { 0 } else { len }];
        self.0.read_exact(&mut body).ok()?;
        Some(Answer { status, headers, body })
    }
}
