//! Each level of an error has its own text, so that a report shows each text once.

use std::error::Error;
use std::io;

use millstream_redis::{Redis, RedisError};
use testkit::levels::repeated;

#[tokio::test]
async fn no_level_repeats_the_text_of_its_source() {
    let [address, reason, key] = ["127.0.0.1:1", "NOPERM", "key"].map(str::to_owned);
    let source = Box::new(io::Error::from_raw_os_error(111));
    let unreachable = RedisError::Unreachable { address: address.clone(), source };
    assert!(unreachable.source().is_some());
    let all = [
        unreachable,
        RedisError::Credentials { address: address.clone() },
        RedisError::Forbidden { address: address.clone(), reason: reason.clone() },
        RedisError::Occupied { address: address.clone(), key },
        RedisError::Cluster { address: address.clone(), reason: reason.clone() },
        RedisError::TooOld { address: address.clone() },
        RedisError::Refused { address, reason },
        RedisError::Url { reason: "not a URL" },
        Redis::builder("redis://127.0.0.1:1/").connect().await.unwrap_err(),
    ];
    for error in &all {
        assert_eq!(repeated(error), None, "{error:?}");
    }
    use io::ErrorKind::{InvalidInput, NotConnected, Other, PermissionDenied, Unsupported};
    let kinds = [
        NotConnected,
        PermissionDenied,
        PermissionDenied,
        InvalidInput,
        Unsupported,
        Unsupported,
        Other,
        InvalidInput,
        NotConnected,
    ];
    assert_eq!(all.map(|error| io::Error::from(error).kind()), kinds);
}
