//! Events for operators, in `tracing` under the target `millstream`, and their counts. Without the feature `tracing`
//! there are the counts.

use std::error::Error;
use std::net::IpAddr;

use millstream::internal::{Counter, count};

/// The listener has failed permanently, and its caller cannot get the error.
#[cfg(feature = "axum-08")]
pub(crate) fn listener_failed(error: &std::io::Error) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", %error, "the listener has failed and accepts no more connections");
    let _ = error;
}

/// A connection of a trusted peer ends without a request.
pub(crate) fn refused(peer: Option<IpAddr>, error: &(dyn Error + 'static)) {
    count(Counter::ProxyHeadersRefused, 1);
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "millstream",
        peer = peer.map(tracing::field::display),
        error,
        "a connection is closed: a trusted peer sent no valid PROXY header"
    );
    let _ = (peer, error);
}

/// Level `DEBUG`, because any client can cause it.
pub(crate) fn not_trusted(peer: Option<IpAddr>) {
    count(Counter::ProxyHeadersRefused, 1);
    #[cfg(feature = "tracing")]
    tracing::debug!(
        target: "millstream",
        peer = peer.map(tracing::field::display),
        "a connection is closed: its peer is not a trusted load balancer"
    );
    let _ = peer;
}
