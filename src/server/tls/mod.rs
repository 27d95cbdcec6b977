//! TLS for the server: certificates that can be replaced at run time, and a stream that adapts the size of its records.
//!
//! ```text
//!  files ──▶ Tls ──current configuration──▶ handshake ──▶ TlsStream ◀──plain bytes──▶ hyper
//!            ▲                                                │ records: small ones first, full ones later
//!     reload ┘                                                ▼
//!                                                        net::TcpStream, which gathers them
//! ```
//!
//! Protocol and cryptography are those of [rustls], through [tokio_rustls]: TLS 1.3 and 1.2 (RFC 8446, RFC 5246), with
//! session tickets. ALPN (RFC 7301) negotiates HTTP/2 or HTTP/1.1.
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
#[doc(no_inline)]
pub use tokio_rustls::rustls;
pub(super) use watch::Watching;
