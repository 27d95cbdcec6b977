//! Error numbers of the system, by the names of rustix.

use std::fmt;
use std::io;

/// An error number of the system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(i32);

/// Defines the numbers: by their name in libc, and as Windows has them.
macro_rules! numbers {
    ($($name:ident $unix:ident $windows:literal,)*) => {
        #[cfg_attr(windows, allow(dead_code))]
        impl Errno {
            $(
                #[cfg(unix)]
                pub(crate) const $name: Self = Self(libc::$unix);
                #[cfg(windows)]
                pub(crate) const $name: Self = Self($windows);
            )*
        }
    };
}

// Winsock's numbers begin at 10000; the others are those of the file functions.
numbers! {
    ACCESS EACCES 5,
    ADDRINUSE EADDRINUSE 10048,
    AFNOSUPPORT EAFNOSUPPORT 10047,
    AGAIN EAGAIN 10035,
    BADF EBADF 6,
    CANCELED ECANCELED 995,
    CONNABORTED ECONNABORTED 10053,
    CONNREFUSED ECONNREFUSED 10061,
    DQUOT EDQUOT 1295,
    EXIST EEXIST 80,
    FAULT EFAULT 10014,
    FBIG EFBIG 223,
    HOSTDOWN EHOSTDOWN 10064,
    HOSTUNREACH EHOSTUNREACH 10065,
    ILSEQ EILSEQ 123,
    INTR EINTR 10004,
    INVAL EINVAL 87,
    IO EIO 1117,
    ISDIR EISDIR 267,
    LOOP ELOOP 10062,
    MFILE EMFILE 4,
    NAMETOOLONG ENAMETOOLONG 206,
    NETDOWN ENETDOWN 10050,
    NETUNREACH ENETUNREACH 10051,
    NFILE ENFILE 10024,
    NOBUFS ENOBUFS 10055,
    NODEV ENODEV 20,
    NOENT ENOENT 2,
    NOMEM ENOMEM 8,
    NOPROTOOPT ENOPROTOOPT 10042,
    NOSPC ENOSPC 112,
    NOSYS ENOSYS 120,
    NOTDIR ENOTDIR 3,
    NXIO ENXIO 55,
    OPNOTSUPP EOPNOTSUPP 10045,
    PERM EPERM 1314,
    PIPE EPIPE 109,
    PROTO EPROTO 10043,
    RANGE ERANGE 534,
    SPIPE ESPIPE 132,
    STALE ESTALE 1006,
    TIMEDOUT ETIMEDOUT 10060,
    XDEV EXDEV 17,
}

impl Errno {
    /// `ENONET` is Linux's alone.
    pub(crate) const NONET: Self = Self(if cfg!(target_os = "linux") { 64 } else { -1 });

    /// Returns the number of an error. Errors that std and libraries make themselves get the number of their kind.
    pub(crate) fn from_io_error(error: &io::Error) -> Option<Self> {
        use io::ErrorKind;
        let of_kind = || match error.kind() {
            ErrorKind::AlreadyExists => Some(Self::EXIST),
            ErrorKind::InvalidInput => Some(Self::INVAL),
            ErrorKind::IsADirectory => Some(Self::ISDIR),
            ErrorKind::NotADirectory => Some(Self::NOTDIR),
            ErrorKind::NotFound => Some(Self::NOENT),
            ErrorKind::PermissionDenied => Some(Self::ACCESS),
            ErrorKind::TimedOut => Some(Self::TIMEDOUT),
            ErrorKind::Unsupported => Some(Self::OPNOTSUPP),
            ErrorKind::WouldBlock => Some(Self::AGAIN),
            _ => None,
        };
        // Windows has several numbers for one kind.
        match error.raw_os_error() {
            Some(number) if cfg!(unix) => Some(Self(number)),
            number => of_kind().or(number.map(Self)),
        }
    }

    pub(crate) fn raw_os_error(self) -> i32 {
        self.0
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&io::Error::from(*self), f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&io::Error::from(*self), f)
    }
}
