//! Adopts the connections of the process before.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::link::{Link, unexpected};
use crate::log;
use crate::queue::Queue;
use crate::record::Record;

/// Passes the connections that arrive on `link` to the `queues` of the listeners, by the numbers that the process before
/// has given them. A listener that this process does not have has no queue.
pub(crate) async fn adopt(link: Link, queues: Vec<Option<Arc<Queue<OwnedFd>>>>) {
    let mut connections = 0;
    let ended = receive_all(&link, &queues, &mut connections).await;
    log::adopted(connections);
    if let Err(error) = ended {
        log::ended_early(&error);
    }
}

async fn receive_all(link: &Link, queues: &[Option<Arc<Queue<OwnedFd>>>], connections: &mut usize) -> io::Result<()> {
    loop {
        let (listener, sockets) = match link.receive().await? {
            Some((Record::Sockets(listener), sockets)) => (listener, sockets),
            Some((Record::Done, _)) => return link.send(&Record::Taken, &[]).await,
            Some((other, _)) => return Err(unexpected(&other)),
            None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it gave not all")),
        };
        let Some(Some(queue)) = queues.get(usize::from(listener)) else {
            link.send(&Record::Refused("there is no such listener".to_owned()), &[]).await?;
            continue;
        };
        // Fails if the other process has ended. The next record, or the end, says whose they are.
        let _ = link.send(&Record::Taken, &[]).await;
        let is_ours = match link.receive().await {
            Ok(Some((Record::Yours, _))) => true,
            Ok(Some((Record::Keeps, _))) => false,
            Ok(Some((other, _))) => return Err(unexpected(&other)),
            // The other process decides before it ends the connection, so it has died. Nobody else has these sockets.
            Ok(None) => true,
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => true,
            Err(e) => return Err(e),
        };
        if is_ours {
            *connections += sockets.len();
            sockets.into_iter().for_each(|socket| queue.push(socket));
        }
    }
}

#[cfg(test)]
mod tests;
