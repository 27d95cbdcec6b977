//! Numbers of a TCP connection.

use std::time::Duration;

/// Kernel statistics of a TCP connection (`TCP_INFO`). Fields that an older kernel does not report are 0.
/// Linux only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// Smoothed round-trip time; 0 before the first acknowledgement.
    pub rtt: Duration,
    /// Variation of the round-trip time.
    pub rtt_var: Duration,
    /// Minimum round-trip time (Linux 4.9).
    pub min_rtt: Duration,
    /// Congestion window: maximum number of segments in flight.
    pub cwnd: u32,
    /// Maximum segment size for sending, in bytes.
    pub mss: u32,
    /// Segments in flight.
    pub unacked: u32,
    /// Bytes in the kernel that are not sent yet (Linux 4.6).
    pub not_sent: u32,
    /// Segments retransmitted since the connection was made.
    pub retransmits: u32,
    /// Recent delivery rate in bytes per second (Linux 4.9).
    pub delivery_rate: u64,
}
