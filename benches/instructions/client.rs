//! The client of the servers that are counted. It checks what it reads.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use http::uri::PathAndQuery;
use measuring::socket::connect;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use crate::keys;
use crate::message::{GrpcMessage, METHOD, Watch};
use crate::servers::{HELLO, LEN, TOKEN};

/// The requests of a client on each of its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Hello,
    Echo,
    /// A response with 100 events.
    Tokens,
    /// An event a turn of a response without an end.
    Token,
    /// An event a turn of a hub, or of a broadcast channel.
    Event,
    EventOverTls,
    /// Messages a turn.
    WebSocket(u32),
    /// A message a turn.
    Grpc,
    /// A hundred messages of a stream without an end.
    GrpcFull,
}

/// The addresses that a server has printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) control: SocketAddr,
}

impl Work {
    /// The counted unit: the work of the server for one connection in a round.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Hello => "request",
            Self::Echo => "message",
            Self::Tokens => "response",
            Self::Token | Self::Event | Self::EventOverTls => "event",
            Self::WebSocket(1) | Self::Grpc => "message",
            Self::WebSocket(_) => "turn",
            Self::GrpcFull => "100 messages",
        }
    }

    /// Runs `rounds` rounds on `connections` connections.
    pub(crate) fn run(self, server: Server, connections: u32, rounds: u32) -> io::Result<()> {
        if let Self::Grpc | Self::GrpcFull = self {
            return self.grpc(server, connections, rounds);
        }
        let mut control = connect(server.control)?;
        let mut clients = Vec::new();
        for _ in 0..connections {
            clients.push(Client::open(self, server.addr)?);
        }
        for _ in 0..rounds {
            match self {
                Self::Token | Self::Event | Self::EventOverTls | Self::WebSocket(_) => control.write_all(b"t")?,
                _ => clients.iter_mut().try_for_each(|client| client.ask(self))?,
            }
            clients.iter_mut().try_for_each(|client| client.take(self))?;
        }
        Ok(())
    }

    fn grpc(self, server: Server, connections: u32, rounds: u32) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let is_full = matches!(self, Self::GrpcFull);
        let mut control = connect(server.control)?;
        runtime.block_on(async {
            let endpoint = Endpoint::from_shared(format!("http://{}", server.addr)).map_err(io::Error::other)?;
            let mut streams = Vec::new();
            for _ in 0..connections {
                let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.map_err(io::Error::other)?);
                grpc.ready().await.map_err(io::Error::other)?;
                let (request, path) = (tonic::Request::new(Watch { is_full }), PathAndQuery::from_static(METHOD));
                let codec = ProstCodec::<Watch, GrpcMessage>::default();
                streams.push(grpc.server_streaming(request, path, codec).await.map_err(io::Error::other)?.into_inner());
            }
            for _ in 0..rounds {
                if !is_full {
                    control.write_all(b"t")?;
                }
                for stream in &mut streams {
                    for _ in 0..if is_full { 100 } else { 1 } {
                        let message = stream.message().await.map_err(io::Error::other)?;
                        let message = message.ok_or(io::ErrorKind::UnexpectedEof)?;
                        same(&message.payload, &[b'x'; LEN])?;
                    }
                }
            }
            Ok(())
        })
    }
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

struct Client {
    stream: Box<dyn Stream>,
    got: Vec<u8>,
}

impl Client {
    /// Connects, and asks for what needs one request only.
    fn open(work: Work, addr: SocketAddr) -> io::Result<Self> {
        let stream = connect(addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let stream: Box<dyn Stream> = match work {
            Work::EventOverTls => {
                let name = ServerName::try_from(keys::NAME).map_err(io::Error::other)?;
                let session = ClientConnection::new(keys::client(), name).map_err(io::Error::other)?;
                Box::new(StreamOwned::new(session, stream))
            }
            _ => Box::new(stream),
        };
        let mut client = Self { stream, got: Vec::new() };
        let (path, fields) = match work {
            Work::Token => ("/token", ""),
            Work::Event | Work::EventOverTls => ("/event", ""),
            Work::WebSocket(each) => (
                &*format!("/ws/{each}"),
                "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            ),
            _ => return Ok(client),
        };
        client.stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: bench\r\n{fields}\r\n").as_bytes())?;
        client.until(b"\r\n\r\n")?;
        Ok(client)
    }

    fn ask(&mut self, work: Work) -> io::Result<()> {
        self.stream.write_all(match work {
            Work::Echo => &[b'x'; LEN],
            Work::Tokens => b"GET /tokens HTTP/1.1\r\nHost: bench\r\n\r\n",
            _ => b"GET /hello HTTP/1.1\r\nHost: bench\r\n\r\n",
        })
    }

    /// Reads what a round has for this connection.
    fn take(&mut self, work: Work) -> io::Result<()> {
        let data = "x".repeat(LEN);
        let expected = match work {
            Work::Echo => return self.exactly(data.as_bytes()),
            Work::WebSocket(each) => {
                // A text without a mask.
                let message = [&[0x81, LEN as u8], data.as_bytes()].concat();
                return self.exactly(&message.repeat(each as usize));
            }
            Work::Tokens => TOKEN.to_owned() + "\r\n0\r\n\r\n",
            Work::Token => TOKEN.to_owned() + "\r\n",
            // A hub adds an id.
            Work::Event | Work::EventOverTls => "\n\n\r\n".to_owned(),
            _ => "\r\n\r\n".to_owned() + HELLO,
        };
        self.until(expected.as_bytes())
    }

    fn until(&mut self, end: &[u8]) -> io::Result<()> {
        while !self.got.ends_with(end) {
            self.more()?;
        }
        self.got.clear();
        Ok(())
    }

    fn exactly(&mut self, expected: &[u8]) -> io::Result<()> {
        while self.got.len() < expected.len() {
            self.more()?;
        }
        same(&self.got, expected)?;
        self.got.clear();
        Ok(())
    }

    fn more(&mut self) -> io::Result<()> {
        let mut buf = [0; 16 << 10];
        match self.stream.read(&mut buf) {
            Ok(0) => Err(io::Error::other(format!("the server has closed after {}", self.got.escape_ascii()))),
            Ok(n) => {
                self.got.extend_from_slice(&buf[..n]);
                Ok(())
            }
            Err(e) => Err(io::Error::other(format!("{e} after {}", self.got.escape_ascii()))),
        }
    }
}

fn same(got: &[u8], expected: &[u8]) -> io::Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(io::Error::other(format!("got {}, expected {}", got.escape_ascii(), expected.escape_ascii())))
}
