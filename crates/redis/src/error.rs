//! Errors of opening a log in Redis.

use std::error::Error;
use std::fmt;
use std::io;

use redis::ErrorKind;

/// Error of [`RedisBuilder::connect`](super::RedisBuilder::connect) and of
/// [`RedisStreamsBuilder::connect`](super::RedisStreamsBuilder::connect). The message names the address and a remedy, and
/// never a password.
#[derive(Debug)]
#[non_exhaustive]
pub enum RedisError {
    /// The URL is not a Redis URL.
    Url {
        /// The reason.
        reason: &'static str,
    },
    /// Redis is unreachable, or did not reply in time.
    Unreachable {
        /// Host and port, or a path.
        address: String,
        /// The underlying error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The user or the password is wrong or missing.
    Credentials {
        /// Host and port, or a path.
        address: String,
    },
    /// The user lacks a permission that the log needs.
    Forbidden {
        /// Host and port, or a path.
        address: String,
        /// The message of Redis.
        reason: String,
    },
    /// The server is older than Redis 6, which [`RedisStreams`](super::RedisStreams) needs.
    TooOld {
        /// Host and port, or a path.
        address: String,
    },
    /// The key holds a value of another type.
    Occupied {
        /// Host and port, or a path.
        address: String,
        /// The key.
        key: String,
    },
    /// The server is a node of a Redis Cluster, and replies that the key belongs to another node, or to none.
    Cluster {
        /// Host and port, or a path.
        address: String,
        /// The message of Redis.
        reason: String,
    },
    /// Redis replied with an error, for example because it is still loading.
    Refused {
        /// Host and port, or a path.
        address: String,
        /// The message of Redis.
        reason: String,
    },
}

impl RedisError {
    pub(crate) fn new(address: &str, key: &str, error: redis::RedisError) -> Self {
        let address = address.to_owned();
        match code(&error).as_deref() {
            Some("NOAUTH" | "WRONGPASS") => Self::Credentials { address },
            _ if error.kind() == ErrorKind::AuthenticationFailed => Self::Credentials { address },
            _ if error.kind() == ErrorKind::RESP3NotSupported => Self::TooOld { address },
            Some("NOPERM") => Self::Forbidden { address, reason: error.to_string() },
            Some(code) if is_of_cluster(code) => Self::Cluster { address, reason: error.to_string() },
            Some("WRONGTYPE") => Self::Occupied { address, key: key.to_owned() },
            Some(_) => Self::Refused { address, reason: error.to_string() },
            // The text only: errors of the redis crate repeat the text of their sources.
            None => Self::Unreachable { address, source: error.to_string().into() },
        }
    }
}

/// Returns the code of a server error; for a pipeline that of the first error.
pub(crate) fn code(error: &redis::RedisError) -> Option<String> {
    let of_several = || Some(error.clone().into_server_errors()?.first()?.1.code().to_owned());
    error.code().map(str::to_owned).or_else(of_several)
}

fn is_of_cluster(code: &str) -> bool {
    matches!(code, "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT")
}

const CLUSTER: &str = "Redis Cluster is not supported: use a Redis that is not part of one, or a proxy in \
                       front of the cluster";

pub(crate) fn describe(error: redis::RedisError) -> String {
    match code(&error) {
        Some(code) if is_of_cluster(&code) => format!("{error}: {CLUSTER}"),
        _ => error.to_string(),
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { reason } => write!(
                f,
                "{reason}; use redis://user:password@host:port/database or unix:///path; the parts before and \
                 after the host are optional"
            ),
            Self::Unreachable { address, .. } => write!(
                f,
                "the Redis at {address} is unreachable; start it (redis-server) or use the address of a running one"
            ),
            Self::Credentials { address } => write!(
                f,
                "the Redis at {address} rejects the user or the password; put them into the URL: \
                 redis://user:password@host"
            ),
            Self::Forbidden { address, reason } => write!(
                f,
                "the Redis at {address} denies a permission: {reason}; the log of a hub needs ACL SETUSER … +xadd \
                 +xrange +xrevrange +xread +multi +exec +pexpire +info +client|id +client|kill and its key; logs of \
                 streams need … +info +client|id +script|load +evalsha +hget +hmget +hset +xlen +xadd +xrange +del \
                 +pexpire +pttl +time +publish +subscribe +unsubscribe, ~PREFIX:* and &PREFIX:*"
            ),
            Self::TooOld { address } => {
                write!(f, "the Redis at {address} is too old for logs of streams; use Redis 6 or later")
            }
            Self::Occupied { address, key } => write!(
                f,
                "the key {key:?} of the Redis at {address} holds a value of another type; choose another key or prefix"
            ),
            Self::Cluster { address, reason } => {
                write!(f, "the Redis at {address} is a node of a cluster and replies {reason}; {CLUSTER}")
            }
            Self::Refused { address, reason } => {
                write!(f, "the Redis at {address} replies with an error: {reason}; try again later")
            }
        }
    }
}

impl Error for RedisError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

/// `InvalidInput` for the URL and the key, `NotConnected`, `PermissionDenied`, `Unsupported` for a cluster and
/// an old server, and `Other` for other errors of Redis.
impl From<RedisError> for io::Error {
    fn from(error: RedisError) -> Self {
        let kind = match &error {
            RedisError::Url { .. } | RedisError::Occupied { .. } => io::ErrorKind::InvalidInput,
            RedisError::Unreachable { .. } => io::ErrorKind::NotConnected,
            RedisError::Credentials { .. } | RedisError::Forbidden { .. } => io::ErrorKind::PermissionDenied,
            RedisError::Cluster { .. } | RedisError::TooOld { .. } => io::ErrorKind::Unsupported,
            RedisError::Refused { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
