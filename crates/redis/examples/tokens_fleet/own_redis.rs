//! A redis-server that runs as long as this program.

use std::fs;
use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::time::sleep;

/// Kills the server, by its pid, when standard input ends, which happens however this program ends.
const GUARD: &str = r#"redis-server "$@" >log 2>&1 & server=$!; read _; kill $server 2>/dev/null; wait"#;

/// A server that listens on a socket in its own directory and keeps nothing.
#[derive(Debug)]
pub(crate) struct OwnRedis {
    dir: TempDir,
    guard: Child,
}

impl OwnRedis {
    pub(crate) async fn start() -> Result<Self, String> {
        let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        if let Err(e) = version {
            let help = "install it (Debian: apt-get install redis-server), or give --redis URL";
            return Err(match e.kind() {
                ErrorKind::NotFound => format!("there is no redis-server here: {help}"),
                _ => format!("redis-server does not run: {e}; {help}"),
            });
        }
        let dir = TempDir::with_prefix("tokens-fleet-").map_err(|e| format!("no temporary directory: {e}"))?;
        let mut command = Command::new("sh");
        command.current_dir(&dir).stdin(Stdio::piped()).stdout(Stdio::null());
        command.args(["-c", GUARD, "sh", "--port", "0", "--unixsocket", "redis", "--save", ""]);
        let guard = command.spawn().map_err(|e| format!("sh does not run: {e}"))?;
        let redis = Self { dir, guard };
        for _ in 0..500 {
            if UnixStream::connect(redis.dir.path().join("redis")).await.is_ok() {
                return Ok(redis);
            }
            sleep(Duration::from_millis(20)).await;
        }
        let log = fs::read_to_string(redis.dir.path().join("log")).unwrap_or_default();
        Err(format!("redis-server does not listen after 10 s; its log:\n{log}"))
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.dir.path().join("redis").display())
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // Errors on drop cannot be reported.
        let _ = self.guard.wait();
    }
}
