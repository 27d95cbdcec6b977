//! Records of a stream above a socket, sent without its task and without a copy.

use std::io::{self, IoSlice, Write};

use super::Egress;
use super::gather::with_origins;
use super::outlet::{Outlet, Sent, Way};
use crate::sync::lock;

/// Writes the records of a stream above to its [`Outlet`], which takes all of them.
pub(crate) struct RecordWriter<'a> {
    below: &'a Outlet,
    /// The outcome of the last ones.
    pub(crate) sent: Sent,
}

impl<'a> RecordWriter<'a> {
    pub(crate) fn new(below: &'a Outlet) -> Self {
        Self { below, sent: Sent::All }
    }
}

impl Write for RecordWriter<'_> {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(record)])
    }

    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        let (taken, sent) = match &self.below.0 {
            Way::Socket(egress) => egress.send_records(records),
            Way::Sealed(stream) => {
                let bytes: Vec<u8> = records.iter().flat_map(|record| record.iter().copied()).collect();
                (bytes.len(), lock(stream).send_now(&bytes))
            }
        };
        self.sent = sent;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Egress {
    /// Sends some of the records of a stream above, and returns the number of bytes. If the socket is full, all wait.
    fn send_records(&self, records: &[IoSlice<'_>]) -> (usize, Sent) {
        let offered = records.iter().map(|record| record.len()).sum();
        let mut state = self.state();
        match self.send_some(&mut state, records, offered) {
            Some(0) => {
                state.record_bytes(offered, 0);
                with_origins(records, |records| state.enqueue(records));
                (offered, Sent::Waits)
            }
            Some(n) => {
                state.burst = 0;
                (n, Sent::All)
            }
            None => (offered, Sent::Failed),
        }
    }
}
