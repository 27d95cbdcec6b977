//! HTTP/2 and TLS by hyper's client, on one thread; and one response of any protocol, compared byte by byte.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use measuring::client::{self, Target};
use measuring::latencies::Latencies;
use measuring::noise;
use measuring::report::report;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, HandshakeKind, RootCertStore};

use super::events::EventScanner;
use super::upload::Upload;
use super::{Gauge, Job, Protocol, Task};

/// How long one response may take before the load gives up.
const PATIENCE: Duration = Duration::from_secs(60);

type Sender = client::Sender<Upload>;

static TLS: std::sync::OnceLock<RootCertStore> = std::sync::OnceLock::new();

/// Trusts the certificate that the servers of this run have.
pub(crate) fn trust(certificate: &Path) -> Result<(), String> {
    let pem = std::fs::read(certificate).map_err(|e| format!("{}: {e}", certificate.display()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    }
    // The first run of a process decides; there is one.
    let _ = TLS.set(roots);
    Ok(())
}

async fn ask(sender: &mut Sender, method: Method, target: &Target, body: Upload) -> Result<Incoming, String> {
    sender.ready().await.map_err(|e| report(&e))?;
    let response = sender.send(method, target, body).await.map_err(|e| report(&e))?;
    if !response.status().is_success() {
        return Err(format!("{} was answered {}", target.url, response.status()));
    }
    Ok(response.into_body())
}

async fn connect(address: SocketAddr, protocol: Protocol) -> Result<Sender, String> {
    let h2 = protocol.is_h2();
    match protocol.is_tls() {
        true => Sender::start(secure(address, &connector(protocol, true)?).await?, h2).await.map_err(|e| report(&e)),
        false => Sender::start(dial(address).await?, h2).await.map_err(|e| report(&e)),
    }
}

async fn dial(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).await.map_err(|e| report(&e))?;
    stream.set_nodelay(true).map_err(|e| report(&e))?;
    Ok(stream)
}

fn connector(protocol: Protocol, resumes: bool) -> Result<TlsConnector, String> {
    let roots = TLS.get().ok_or("no certificate is trusted")?;
    let mut config = ClientConfig::builder().with_root_certificates(roots.clone()).with_no_client_auth();
    config.alpn_protocols = vec![if protocol.is_h2() { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn secure(address: SocketAddr, connector: &TlsConnector) -> Result<TlsStream<TcpStream>, String> {
    let name = ServerName::try_from("localhost").map_err(|e| report(&e))?;
    let stream = connector.connect(name, dial(address).await?).await.map_err(|e| report(&e))?;
    if stream.get_ref().1.alpn_protocol() != connector.config().alpn_protocols.first().map(Vec::as_slice) {
        return Err("the server agreed to another version of HTTP".to_owned());
    }
    Ok(stream)
}

/// Asks once on each of one connection after the other.
async fn handshakes(job: &Job, resumed: bool, gauge: &Gauge, latencies: &RefCell<Latencies>) -> Result<(), String> {
    let connector = connector(job.protocol, resumed)?;
    let mut answered = false;
    let mut first = true;
    loop {
        let started = Instant::now();
        let mut stream = secure(job.address, &connector).await?;
        // Thousands of connections that end at once would keep their ports for a minute.
        SockRef::from(stream.get_ref().0).set_linger(Some(Duration::ZERO)).map_err(|e| report(&e))?;
        let resumes = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
        if resumes != resumed && !first {
            return Err(format!("the session was {}", if resumes { "resumed" } else { "not resumed" }));
        }
        first = false;
        let request = format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", job.path);
        stream.write_all(request.as_bytes()).await.map_err(|e| report(&e))?;
        // The answers of all servers are shorter, and have one record. Tickets come before it.
        let mut buffer = [0; 1024];
        let n = stream.read(&mut buffer).await.map_err(|e| report(&e))?;
        if !buffer[..n].starts_with(b"HTTP/1.1 200 OK\r\n") {
            return Err(format!("{} was answered {:?}", job.path, String::from_utf8_lossy(&buffer[..n])));
        }
        gauge.add_bytes(n);
        gauge.complete(started.elapsed(), &mut latencies.borrow_mut(), &mut answered);
    }
}

pub(super) fn run(job: &Job, gauge: &Gauge) -> Result<Latencies, String> {
    let latencies = RefCell::<Latencies>::default();
    let runtime = runtime()?;
    let all = async {
        match job.task {
            Task::Handshakes { resumed } => {
                let all = (0..job.connections).map(|_| handshakes(job, resumed, gauge, &latencies));
                try_join_all(all).await.map(drop)
            }
            Task::Get | Task::Put(_) | Task::Events => {
                let mut senders = Vec::new();
                for number in job.first..job.first + job.connections {
                    let target = match job.task {
                        Task::Put(_) => target(job.protocol, &format!("{}{number}", job.path))?,
                        _ => target(job.protocol, &job.path)?,
                    };
                    let sender = connect(job.address, job.protocol).await?;
                    let others: Vec<_> = (1..job.streams).map_while(|_| sender.another()).collect();
                    senders.extend(others.into_iter().chain([sender]).map(|sender| (target.clone(), sender)));
                }
                let all = senders.into_iter().map(|(target, sender)| async {
                    match job.task {
                        Task::Events => events(target, gauge, sender, &latencies).await,
                        _ => requests(job.task, target, gauge, sender, &latencies).await,
                    }
                });
                try_join_all(all).await.map(drop)
            }
            Task::Open { .. } | Task::Churn | Task::Once => {
                Err(format!("{:?} is a load of HTTP/1.1 without TLS; give the cell this protocol", job.task))
            }
        }
    };
    let stopped = async {
        while !gauge.is_stopped() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Responses in flight at the end are given up.
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = stopped => Ok(()),
            ended = all => ended,
        }
    })?;
    Ok(latencies.into_inner())
}

fn runtime() -> Result<Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| report(&e))
}

fn target(protocol: Protocol, path: &str) -> Result<Target, String> {
    let scheme = if protocol.is_tls() { "https" } else { "http" };
    Target::new(format!("{scheme}://localhost{path}").parse().map_err(|e| report(&e))?)
}

async fn requests(
    task: Task,
    target: Target,
    gauge: &Gauge,
    mut sender: Sender,
    latencies: &RefCell<Latencies>,
) -> Result<(), String> {
    let mut answered = false;
    let upload = task.body();
    let method = if upload.is_empty() { Method::GET } else { Method::PUT };
    loop {
        let started = Instant::now();
        let body = Upload::new(upload, gauge.bytes.clone());
        let mut body = ask(&mut sender, method.clone(), &target, body).await?;
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|e| report(&e))?;
            if upload.is_empty() {
                gauge.add_bytes(data.data_ref().map_or(0, Bytes::len));
            }
        }
        gauge.complete(started.elapsed(), &mut latencies.borrow_mut(), &mut answered);
    }
}

/// Reads one endless response.
async fn events(
    target: Target,
    gauge: &Gauge,
    mut sender: Sender,
    latencies: &RefCell<Latencies>,
) -> Result<(), String> {
    let mut answered = false;
    let mut scanner = EventScanner::default();
    let mut body = ask(&mut sender, Method::GET, &target, Upload::default()).await?;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|e| report(&e))?.into_data() else { continue };
        gauge.add_bytes(data.len());
        scanner.scan(&data, |latency| gauge.complete(latency, &mut latencies.borrow_mut(), &mut answered));
    }
    Err(format!("{}: an endless stream of events has ended", target.url))
}

/// Asks once and compares the body: with the contents of files, if `len` is given. Returns its length.
pub(crate) fn check(address: SocketAddr, protocol: Protocol, path: &str, len: Option<u64>) -> Result<u64, String> {
    let target = target(protocol, path)?;
    let asked = async {
        let mut sender = connect(address, protocol).await?;
        let mut body = ask(&mut sender, Method::GET, &target, Upload::default()).await?;
        let mut seen = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|e| report(&e))?.into_data() else { continue };
            if len.is_some() && !noise::is_at(seen, &data) {
                return Err(format!("{path}: other contents between {seen} and {}", seen + data.len() as u64));
            }
            seen += data.len() as u64;
        }
        match len {
            Some(len) if len != seen => Err(format!("{path} has {seen} bytes in place of {len}")),
            _ => Ok(seen),
        }
    };
    runtime()?.block_on(async {
        tokio::time::timeout(PATIENCE, asked).await.map_err(|_| format!("{path}: no answer within {PATIENCE:?}"))?
    })
}
