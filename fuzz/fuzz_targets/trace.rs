//! `traceparent`, `tracestate` and `x-request-id` of any peer: what a service sees is valid, and belongs to the peer only if
//! the peer is trusted.
#![no_main]

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};

use arbitrary::Arbitrary;
use http::{HeaderMap, HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use millstream_layers::{RequestId, StampLayer, TraceParent};
use millstream::net::CountedIo;
use millstream::server::{Connection, Trusted};
use millstream_fuzz::run;
use tower::{Layer, ServiceExt, service_fn};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    parents: Vec<Parent<'a>>,
    states: Vec<&'a [u8]>,
    ids: Vec<&'a [u8]>,
    is_trusted: bool,
}

#[derive(Arbitrary, Debug)]
enum Parent<'a> {
    Text(&'a [u8]),
    Made { version: u8, trace: u128, parent: u64, flags: u8, more: &'a [u8], upper: bool },
}

impl Parent<'_> {
    fn text(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.to_vec(),
            Self::Made { version, trace, parent, flags, more, upper } => {
                let text = format!("{version:02x}-{trace:032x}-{parent:016x}-{flags:02x}");
                let mut text = if *upper { text.to_uppercase() } else { text }.into_bytes();
                text.extend_from_slice(more);
                text
            }
        }
    }
}

/// Reads a `traceparent` by its fields: trace, parent and flags.
fn read(text: &[u8]) -> Option<(u128, u64, u8)> {
    let mut fields = text.split(|&b| b == b'-');
    let mut hex = |len: usize| {
        let field = fields.next()?;
        let is_hex = field.len() == len && field.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        is_hex.then(|| u128::from_str_radix(std::str::from_utf8(field).unwrap(), 16).unwrap())
    };
    let (version, trace, parent, flags) = (hex(2)?, hex(32)?, hex(16)? as u64, hex(2)? as u8);
    let more = fields.next().is_some();
    (version != 255 && (version != 0 || !more) && trace != 0 && parent != 0).then_some((trace, parent, flags))
}

fn values(name: &'static str, list: impl IntoIterator<Item = Vec<u8>>, to: &mut HeaderMap) -> Vec<Vec<u8>> {
    let values: Vec<_> = list.into_iter().filter_map(|text| HeaderValue::from_bytes(&text).ok()).collect();
    for value in &values {
        to.append(name, value.clone());
    }
    values.iter().map(|value| value.as_bytes().to_vec()).collect()
}

fuzz_target!(|input: Input<'_>| {
    let mut headers = HeaderMap::new();
    let parents = values("traceparent", input.parents.iter().map(Parent::text), &mut headers);
    let states = values("tracestate", input.states.iter().map(|text| text.to_vec()), &mut headers);
    let ids = values("x-request-id", input.ids.iter().map(|text| text.to_vec()), &mut headers);

    let given = match &parents[..] {
        [one] => read(one),
        _ => None,
    };
    let parsed = TraceParent::of(&headers);
    assert_eq!(
        parsed.map(|parent| (parent.trace_id(), parent.parent_id(), parent.sampled())),
        given.map(|(trace, parent, flags)| (trace, parent, flags & 1 != 0))
    );
    if let Some(parsed) = parsed {
        assert_eq!(parsed.to_string().parse(), Ok(parsed));
    }

    let stamp = StampLayer::new().trusted("192.0.2.0/24".parse::<Trusted>().unwrap()).sampled(0.0);
    let service = stamp.layer(service_fn(|request: Request<()>| async move {
        Ok::<_, Infallible>(Response::new(request.into_parts().0))
    }));
    let mut request = Request::new(());
    *request.headers_mut() = headers;
    let peer: IpAddr = Ipv4Addr::new(192, 0, if input.is_trusted { 2 } else { 3 }, 1).into();
    request.extensions_mut().insert(Connection::new(peer, CountedIo::new(tokio::io::empty()).handle()));
    let Ok(response) = run(service.oneshot(request));
    let answered = response.headers()["x-request-id"].clone();
    let seen = response.into_body();

    let id = RequestId::of(&seen.headers).expect("a valid id");
    assert_eq!(id.as_header(), answered);
    assert_eq!(seen.extensions.get::<RequestId>(), Some(&id));
    let is_id =
        |id: &[u8]| (1..=64).contains(&id.len()) && id.iter().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(b));
    match &ids[..] {
        [one] if input.is_trusted && is_id(one) => assert_eq!(id.as_str().as_bytes(), one),
        all => assert!(id.as_str().len() == 32 && !all.iter().any(|one| one == id.as_str().as_bytes())),
    }

    let parent = TraceParent::of(&seen.headers).expect("a valid trace");
    assert_eq!(seen.extensions.get::<TraceParent>(), Some(&parent));
    let states_now: Vec<_> = seen.headers.get_all("tracestate").iter().map(|value| value.as_bytes().to_vec()).collect();
    match given.filter(|_| input.is_trusted) {
        Some((trace, old, flags)) => {
            assert_eq!((parent.trace_id(), parent.sampled()), (trace, flags & 1 != 0));
            assert_ne!(parent.parent_id(), old);
            let joined = states.join(&b","[..]);
            let is_good = joined.len() <= 512
                && (joined.iter().filter(|b| **b == b',').count() < 32)
                && joined.iter().all(|b| matches!(b, b'\t' | b' '..=b'~'));
            assert_eq!(states_now, if is_good { states } else { Vec::new() });
        }
        None => {
            assert!(states_now.is_empty() && !parent.sampled());
            assert!(given.is_none_or(|(trace, ..)| parent.trace_id() != trace), "a forged trace");
        }
    }
});
