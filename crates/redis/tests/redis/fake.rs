//! A server in place of a Redis, with replies chosen by a test.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Debug)]
pub(crate) enum Say {
    This(&'static [u8]),
    /// These bytes, followed by this many further bytes. The server counts how many of them are accepted.
    Flood(&'static [u8], usize),
}

/// A server that answers commands. `None` selects the reply of an empty Redis.
#[derive(Debug)]
pub(crate) struct FakeRedis {
    addr: SocketAddr,
    flooded: Arc<AtomicUsize>,
}

impl FakeRedis {
    pub(crate) async fn start(answer: impl Fn(&[String]) -> Option<Say> + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, flooded) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&flooded);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Connections end in any way here.
                tokio::spawn(serve(stream, answer.clone(), Arc::clone(&count)));
            }
        });
        Self { addr, flooded }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    /// Maximum number of bytes of a flood that a connection has accepted.
    pub(crate) fn flooded(&self) -> usize {
        self.flooded.load(Ordering::Relaxed)
    }
}

async fn serve(
    stream: TcpStream,
    answer: impl Fn(&[String]) -> Option<Say>,
    flooded: Arc<AtomicUsize>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let command = command(&mut stream).await?;
        if command[0] == "XREAD" {
            // `XREAD` blocks.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let say = answer(&command).unwrap_or_else(|| usual(&command));
        match say {
            Say::This(bytes) => stream.write_all(bytes).await?,
            Say::Flood(bytes, len) => {
                stream.write_all(bytes).await?;
                let (mut left, zeros) = (len, vec![b'0'; 1 << 20]);
                while left > 0 {
                    let n = stream.write(&zeros[..left.min(zeros.len())]).await?;
                    left -= n;
                    flooded.fetch_max(len - left, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Reads an array of strings, the form of every command.
async fn command(stream: &mut BufReader<TcpStream>) -> std::io::Result<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..number(stream, "*").await? {
        let mut word = vec![0; number(stream, "$").await? + 2];
        stream.read_exact(&mut word).await?;
        words.push(String::from_utf8_lossy(&word[..word.len() - 2]).into_owned());
    }
    Ok(words)
}

async fn number(stream: &mut BufReader<TcpStream>, kind: &str) -> std::io::Result<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let number = line.trim_end().strip_prefix(kind).and_then(|number| number.parse().ok());
    number.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

fn usual(command: &[String]) -> Say {
    Say::This(match (&*command[0], command.get(1).map(|word| &**word)) {
        ("CLIENT", Some("ID")) => b":7\r\n",
        ("CLIENT", Some("KILL")) => b":0\r\n",
        ("INFO", _) => b"$23\r\nrun_id:abc\r\nrole:master\r\n",
        ("XREAD", _) => b"*-1\r\n",
        ("XRANGE" | "XREVRANGE", _) => b"*0\r\n",
        _ => b"+OK\r\n",
    })
}
