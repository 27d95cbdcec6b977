//! TLS for the server: certificates that can be replaced while it runs, and a stream that chooses the size of its
//! records.
//!
//! ```text
//!  files ──▶ Tls ──current configuration──▶ handshake ──▶ TlsStream ◀──plain bytes──▶ hyper
//!            ▲                                                │ records: small ones first, full ones later
//!     reload ┘                                                ▼
//!                                                        net::TcpStream, which gathers them
//! ```
//!
//! The cryptography and the protocol are those of [rustls], by [tokio_rustls]. TLS 1.3 and 1.2 (RFC 8446, RFC 5246),
//! with session tickets; HTTP/2 and HTTP/1.1 are agreed on by ALPN (RFC 7301).
//!
//! [rustls]: tokio_rustls::rustls

mod accept;
mod config;
mod error;
mod identity;
mod records;
mod stream;
mod watch;

pub use config::Tls;
pub use error::TlsError;
pub use stream::TlsStream;
pub(super) use watch::Watching;
