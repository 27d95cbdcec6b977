//! Error numbers of the system.

pub(crate) use rustix::io::Errno;
