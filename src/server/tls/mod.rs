//! TLS for the server: certificates that can be replaced at run time, and a stream that adapts the size of its records.
//!
//! ```text
//!  files ──▶ Tls ──current configuration──▶ handshake ──▶ TlsStream ◀──plain bytes──▶ hyper
//!            ▲                                                │ records: small ones first, full ones later
//!     reload ┘                                                ▼
//!                                                        net::TcpStream, which gathers them
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `builder`, `config` | [`TlsBuilder`]; [`Tls`], its current configuration and replacement |
//! | `sources` | the sources of a configuration: `identity`, `clients`, `tickets`, all from `pem` files or texts |
//! | `names` | the certificate for a server name |
//! | `provider` | the cryptography that features choose |
//! | `watch` | reload of files that change |
//! | `accept`, `stream`, `records` | handshake, [`TlsStream`], sizes of records |
//!
//! Protocol and cryptography are those of [rustls], through [tokio_rustls]: TLS 1.3 and 1.2 (RFC 8446, RFC 5246), with
//! session tickets. ALPN (RFC 7301) negotiates HTTP/2 or HTTP/1.1.
//!
//! [rustls]: tokio_rustls::rustls

mod accept;
mod builder;
mod clients;
mod config;
mod error;
mod identity;
mod names;
mod pem;
mod provider;
mod records;
mod sources;
mod stream;
mod tickets;
mod watch;

pub use builder::TlsBuilder;
pub use clients::ClientCertificate;
pub use config::Tls;
pub use error::TlsError;
pub use stream::TlsStream;
#[doc(no_inline)]
pub use tokio_rustls::rustls;
pub(super) use watch::Watching;
