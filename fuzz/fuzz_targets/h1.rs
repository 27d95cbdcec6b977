//! Bytes of an HTTP/1 client, cut anywhere, against `server::serve`: every answered byte belongs to a valid response, the
//! connection ends, and the server goes on.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use millstream_fuzz::service::{GOOD, GOOD_BODY, service};
use millstream_fuzz::{Address, all_closed, http1, pieces, run, start};

static SERVER: LazyLock<Address> = LazyLock::new(|| start(service(), |serve| serve));

fuzz_target!(|data: &[u8]| {
    let pieces = pieces(data);
    // HTTP/2 has a target of its own.
    if pieces.concat().starts_with(b"PRI * HTTP/2.0") {
        return;
    }
    run(async {
        http1::responses(&SERVER.exchange(&pieces).await);
        let good = http1::responses(&SERVER.exchange(&[GOOD]).await);
        assert_eq!(good.len(), 1, "{good:?}");
        assert_eq!((good[0].status, &*good[0].body), (200, GOOD_BODY));
        all_closed().await;
    });
});
