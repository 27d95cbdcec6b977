//! Errors of a Redis that are found when a service starts.

use std::error::Error;
use std::fmt;

use redis::ErrorKind;

/// Why a log could not be opened, from [`RedisBuilder::connect`](super::RedisBuilder::connect). The message names the
/// address and a remedy, and never a password.
#[derive(Debug)]
#[non_exhaustive]
pub enum RedisError {
    /// The URL is not a Redis URL.
    Url {
        /// The reason.
        reason: &'static str,
    },
    /// No Redis answers, or not in time.
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
    /// The key holds a value that is not a stream.
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
    /// Redis replies with an error, for instance because it is still loading.
    Refused {
        /// Host and port, or a path.
        address: String,
        /// The message of Redis.
        reason: String,
    },
}

impl RedisError {
    pub(super) fn new(address: &str, key: &str, error: redis::RedisError) -> Self {
        let address = address.to_owned();
        match code(&error).as_deref() {
            Some("NOAUTH" | "WRONGPASS") => Self::Credentials { address },
            _ if error.kind() == ErrorKind::AuthenticationFailed => Self::Credentials { address },
            Some("NOPERM") => Self::Forbidden { address, reason: error.to_string() },
            Some(code) if is_of_cluster(code) => Self::Cluster { address, reason: error.to_string() },
            Some("WRONGTYPE") => Self::Occupied { address, key: key.to_owned() },
            Some(_) => Self::Refused { address, reason: error.to_string() },
            None => Self::Unreachable { address, source: Box::new(error) },
        }
    }
}

/// Code of a server error; of several commands, that of the first error.
pub(super) fn code(error: &redis::RedisError) -> Option<String> {
    let of_several = || Some(error.clone().into_server_errors()?.first()?.1.code().to_owned());
    error.code().map(str::to_owned).or_else(of_several)
}

/// Whether only nodes of a Redis Cluster reply with this code.
fn is_of_cluster(code: &str) -> bool {
    matches!(code, "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT")
}

/// Remedy for a cluster.
const CLUSTER: &str = "Redis Cluster is not supported: use a Redis that is not part of one, or a proxy that makes one address \
                       of the cluster";

/// Describes an error that occurred while the log was used.
pub(super) fn describe(error: redis::RedisError) -> String {
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
                "{reason}; the URL of a Redis is redis://user:password@host:port/database or unix:///path, the parts \
                 behind the host and before it being optional"
            ),
            Self::Unreachable { address, source } => write!(
                f,
                "no Redis answers at {address}: {source}; start it (redis-server) or give the address of one that runs"
            ),
            Self::Credentials { address } => write!(
                f,
                "the Redis at {address} refuses the user or the password; put them into the URL: \
                 redis://user:password@host"
            ),
            Self::Forbidden { address, reason } => write!(
                f,
                "the Redis at {address} lets this user do too little: {reason}; a log needs ACL SETUSER … +xadd +xrange \
                 +xrevrange +xread +multi +exec +pexpire +info +client|id +client|kill and its key"
            ),
            Self::Occupied { address, key } => write!(
                f,
                "the key {key:?} of the Redis at {address} holds something that is not a stream; choose another key"
            ),
            Self::Cluster { address, reason } => {
                write!(f, "the Redis at {address} is a node of a cluster and answers {reason}; {CLUSTER}")
            }
            Self::Refused { address, reason } => {
                write!(f, "the Redis at {address} answers with an error: {reason}; try again when that has passed")
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
