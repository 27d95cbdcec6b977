//! Connecting to a name with several addresses: the first connection wins.
//!
//! Addresses are tried in the resolver's order ([RFC 6724](https://www.rfc-editor.org/rfc/rfc6724)), alternating
//! between the families. Each has a head start over the next; a failure starts the next at once. This is
//! [RFC 8305](https://www.rfc-editor.org/rfc/rfc8305), except that both families are resolved in one query.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

/// Delay before the next address is tried as well: the recommendation of RFC 8305 §5.
pub(super) const HEAD_START: Duration = Duration::from_millis(250);

/// Addresses that were tried, with their error; `None` if there was no answer yet.
pub(in crate::net) type Tried = Vec<(SocketAddr, Option<io::Error>)>;

/// Returns the addresses in the order of attempts: alternating families, beginning with that of the first address.
pub(super) fn in_turns(addrs: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let addrs: Vec<_> = addrs.into_iter().collect();
    let first_is_v6 = addrs.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        addrs.into_iter().partition(|addr| addr.is_ipv6() == first_is_v6);
    let mut turns = Vec::with_capacity(first.len() + second.len());
    while !first.is_empty() || !second.is_empty() {
        turns.extend(first.pop_front());
        turns.extend(second.pop_front());
    }
    turns
}

/// Runs `attempt` for each address until one succeeds, and returns its result; the other attempts are dropped. Returns
/// `None` if all fail. `tried` is up to date even if the future is dropped.
pub(super) async fn race<T, F>(
    addrs: Vec<SocketAddr>,
    tried: &mut Tried,
    attempt: impl Fn(SocketAddr) -> F,
) -> Option<(SocketAddr, T)>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut rest = addrs.into_iter();
    let mut running = JoinSet::new();
    loop {
        if let Some(addr) = rest.next() {
            let attempt = attempt(addr);
            tried.push((addr, None));
            running.spawn(async move { (addr, attempt.await) });
        }
        let ended = match rest.len() {
            0 => running.join_next().await,
            _ => match timeout(HEAD_START, running.join_next()).await {
                Ok(ended) => ended,
                Err(_) => continue,
            },
        };
        match ended? {
            Ok((addr, Ok(connected))) => return Some((addr, connected)),
            Ok((addr, Err(error))) => {
                let of = tried.iter_mut().find(|(tried, _)| *tried == addr);
                of.expect("internal: the attempt was started").1 = Some(error);
            }
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests;
