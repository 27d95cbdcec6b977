//! The path of each request: exact shares, choice by trusted peers, and the path set on the stream.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::Extensions;
use hyper::{Request, Response};
use millstream::metrics::Snapshot;
use millstream::net::SendStrategy;
use millstream::server::Connection;
use millstream::server::Trusted;
use millstream_layers::{CanaryBuilder, CanaryLayer, ShareUnit};
use tower::{Layer, service_fn};

use super::servers::{Accepted, Client, FRIEND, STRANGER, field, start, start_with};
use testkit::http::on_both;

const TOKEN: &str = "a-token-that-nobody-guesses";
const ASK: &str = "x-millstream-canary";
const REPORT: &str = "x-millstream-path";

/// Answers whether the service sees the header that a canary must remove.
async fn mirror<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    let seen = request.headers().contains_key(ASK);
    Ok(Response::new(Full::new(if seen { "seen" } else { "not seen" }.into())))
}

fn reported() -> CanaryBuilder {
    CanaryLayer::builder().report(true)
}

async fn serve(layer: &CanaryLayer) -> (SocketAddr, Accepted) {
    start(layer.layer(service_fn(mirror))).await
}

fn path(answer: &Response<String>) -> String {
    field(answer, REPORT).expect("a path").to_owned()
}

#[test]
fn requests_of_http_1_keep_exact_shares_and_their_sockets_follow() {
    on_both(|| async {
        let layer = reported().share(SendStrategy::NoSendfile, 30.0).share(SendStrategy::NoCork, 7.0).build().unwrap();
        let (addr, accepted) = serve(&layer).await;
        let mut counts = HashMap::<_, u32>::new();
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(Client::one(STRANGER, addr).await);
        }
        for n in 0..400 {
            let answer = clients[n % 4].ask(&[]).await;
            let handle = accepted.lock().unwrap()[n % 4].clone();
            assert_eq!(handle.send_strategy().unwrap().to_string(), path(&answer), "the path of the stream");
            *counts.entry(path(&answer)).or_default() += 1;
        }
        assert_eq!(counts["no-sendfile"], 120);
        assert_eq!(counts["no-cork"], 28);
        assert_eq!(counts["auto"], 252);
        let state = layer.handle().state();
        let requests: Vec<_> = state.paths.iter().map(|path| (path.path, path.requests, path.share)).collect();
        assert_eq!(requests[0], (SendStrategy::Auto, 252, 63.0));
        assert_eq!(requests[1..], [(SendStrategy::NoSendfile, 120, 30.0), (SendStrategy::NoCork, 28, 7.0)]);
        assert!(state.paths[0].p99.is_some());
    });
}

#[tokio::test]
async fn connections_of_http_2_keep_a_path_and_so_do_those_of_http_1_if_asked() {
    for (unit, two) in [(ShareUnit::Requests, true), (ShareUnit::Connections, true), (ShareUnit::Connections, false)] {
        let layer = reported().unit(unit).share(SendStrategy::NoCork, 20.0).build().unwrap();
        let (addr, _) = serve(&layer).await;
        let mut on_no_cork = 0;
        for _ in 0..100 {
            let mut client = if two { Client::two(STRANGER, addr).await } else { Client::one(STRANGER, addr).await };
            let first = path(&client.ask(&[]).await);
            assert_eq!(path(&client.ask(&[]).await), first);
            on_no_cork += u32::from(first == "no-cork");
        }
        assert_eq!(on_no_cork, 20, "{unit:?}, {two}");
    }
}

#[tokio::test]
async fn a_change_of_shares_reaches_connections_that_keep_a_path() {
    let layer = reported().build().unwrap();
    let (addr, _) = serve(&layer).await;
    let mut client = Client::two(STRANGER, addr).await;
    for (percent, expected) in [(0.0, "auto"), (100.0, "no-sendfile"), (0.0, "auto")] {
        layer.handle().set_share(SendStrategy::NoSendfile, percent).unwrap();
        assert_eq!(path(&client.ask(&[]).await), expected);
    }
}

#[tokio::test]
async fn unit_and_trusted_peers_change_while_it_runs() {
    let layer = reported().share(SendStrategy::NoCork, 50.0).token(TOKEN).build().unwrap();
    let handle = layer.handle();
    let (addr, _) = serve(&layer).await;
    let mut client = Client::one(FRIEND, addr).await;
    let kinds = async |client: &mut Client| {
        let mut seen: Vec<String> = Vec::new();
        for _ in 0..10 {
            seen.push(path(&client.ask(&[]).await));
        }
        seen.sort();
        seen.dedup();
        seen.len()
    };
    for (unit, expected) in [(ShareUnit::Requests, 2), (ShareUnit::Connections, 1), (ShareUnit::Requests, 2)] {
        handle.set_unit(unit);
        assert_eq!((kinds(&mut client).await, handle.state().unit), (expected, unit));
    }
    // A kept path belongs to the old unit, so a change of the unit makes a new choice.
    let mut two = Client::two(STRANGER, addr).await;
    let mut seen = Vec::new();
    for _ in 0..10 {
        handle.set_unit(ShareUnit::Connections);
        seen.push(path(&two.ask(&[]).await));
    }
    assert!(seen.contains(&"no-cork".to_owned()) && seen.contains(&"auto".to_owned()), "{seen:?}");

    let ask = format!("no-sendfile;{TOKEN}");
    for (networks, may) in [("127.0.0.2", true), ("10.0.0.0/8", false), ("127.0.0.0/8", true), ("", false)] {
        let before = Snapshot::now();
        handle.set_trusted(networks.parse().unwrap());
        assert_eq!(path(&client.ask(&[(ASK, &ask)]).await) == "no-sendfile", may, "{networks}");
        assert_eq!(handle.state().trusted.to_string(), networks.parse::<Trusted>().unwrap().to_string());
        assert!(may || Snapshot::now().since(&before).canaries_refused >= 1);
    }
}

#[test]
fn only_trusted_peers_with_the_token_choose_their_path() {
    on_both(|| async {
        let asks = |path: &str, token: &str| format!("{path};{token}");
        let whole = asks("no-cork", TOKEN);
        let table: &[(&[&str], &str)] = &[
            (&[&whole], "no-cork"),
            (&[&asks("no-sendfile", TOKEN)], "no-sendfile"),
            (&[&asks("auto", TOKEN)], "auto"),
            (&[&asks("no-cork", "a-token-that-nobody-guesset")], ""),
            (&[&asks("no-cork", &TOKEN[1..])], ""),
            (&[&asks("no-cork", &(TOKEN.to_owned() + "x"))], ""),
            (&[&asks("no-cork", "")], ""),
            (&[&asks("no-tls", TOKEN)], ""),
            (&[&asks("NO-CORK", TOKEN)], ""),
            (&[&asks("", TOKEN)], ""),
            (&[&asks("no-cork ", TOKEN)], ""),
            (&["no-cork"], ""),
            (&[TOKEN], ""),
            (&[""], ""),
            (&[";"], ""),
            (&[&whole, &whole], ""),
            (&[&asks("no-cork", &"x".repeat(5000))], ""),
        ];
        for trusted in ["127.0.0.2", ""] {
            let layer = reported().trusted(trusted.parse().unwrap()).token(TOKEN).build().unwrap();
            let (addr, _) = serve(&layer).await;
            for source in [FRIEND, STRANGER] {
                let before = layer.handle().state();
                let mut heard = 0;
                for (sent, expected) in table {
                    for mut client in Client::both(source, addr).await {
                        let sent: Vec<_> = sent.iter().map(|value| (ASK, *value)).collect();
                        let answer = client.ask(&sent).await;
                        let may = source == FRIEND && !trusted.is_empty() && !expected.is_empty();
                        assert_eq!(path(&answer), if may { expected } else { "auto" }, "{sent:?} from {source}");
                        assert_eq!(answer.body(), "not seen", "{sent:?} from {source}");
                        heard += u64::from(may);
                    }
                }
                let after = layer.handle().state();
                assert_eq!(after.heard - before.heard, heard);
                assert_eq!(after.refused - before.refused, 2 * table.len() as u64 - heard);
            }
        }
    });
}

#[tokio::test]
async fn what_was_asked_for_lasts_for_a_request_of_http_1_and_a_connection_of_http_2() {
    let layer =
        reported().trusted("127.0.0.2".parse().unwrap()).token(TOKEN).unit(ShareUnit::Connections).build().unwrap();
    let (addr, _) = serve(&layer).await;
    let ask = format!("no-cork;{TOKEN}");
    for (mut client, then) in Client::both(FRIEND, addr).await.into_iter().zip(["auto", "no-cork"]) {
        assert_eq!(path(&client.ask(&[(ASK, &ask)]).await), "no-cork");
        assert_eq!(path(&client.ask(&[]).await), then);
        layer.handle().set_share(SendStrategy::NoSendfile, 0.0).unwrap();
        assert_eq!(path(&client.ask(&[]).await), then, "after a change of shares");
    }
}

#[tokio::test]
async fn token_and_report_change_while_it_runs() {
    let layer = CanaryLayer::builder().trusted("127.0.0.2".parse().unwrap()).build().unwrap();
    let handle = layer.handle();
    let (addr, _) = serve(&layer).await;
    let mut client = Client::one(FRIEND, addr).await;
    let (old, new) = (format!("no-cork;{TOKEN}"), "no-cork;another-token-of-some-length");
    assert_eq!(field(&client.ask(&[(ASK, &old)]).await, REPORT), None, "reports are off by default");
    assert!(!handle.state().has_token);
    handle.set_report(true);
    assert_eq!(path(&client.ask(&[(ASK, &old)]).await), "auto", "without a token");
    handle.set_token(Some(TOKEN)).unwrap();
    assert_eq!(path(&client.ask(&[(ASK, &old)]).await), "no-cork");
    handle.set_token(Some(&new[8..])).unwrap();
    assert_eq!(path(&client.ask(&[(ASK, &old)]).await), "auto");
    assert_eq!(path(&client.ask(&[(ASK, new)]).await), "no-cork");
    assert!(handle.set_token(Some("short")).is_err());
    assert_eq!(path(&client.ask(&[(ASK, new)]).await), "no-cork", "an invalid token changes nothing");
    handle.set_token(None).unwrap();
    assert_eq!(path(&client.ask(&[(ASK, new)]).await), "auto");
    handle.set_report(false);
    assert_eq!(field(&client.ask(&[]).await, REPORT), None);
}

#[tokio::test]
async fn who_is_no_canary_takes_the_path_of_the_listener() {
    let layer = reported().share(SendStrategy::NoCork, 50.0).build().unwrap();
    // The same as setting the strategy on the listener.
    let hook =
        |_: &mut Extensions, accepted: &Connection| accepted.handle().set_send_strategy(SendStrategy::NoSendfile);
    let (addr, accepted) = start_with(layer.layer(service_fn(mirror)), hook).await;
    let mut client = Client::one(STRANGER, addr).await;
    let mut counts = HashMap::<_, u32>::new();
    for _ in 0..100 {
        *counts.entry(path(&client.ask(&[]).await)).or_default() += 1;
    }
    assert_eq!((counts["no-sendfile"], counts["no-cork"]), (50, 50));
    assert!(accepted.lock().unwrap()[0].send_strategy().is_some());
}

#[tokio::test]
async fn a_connection_that_is_not_known_keeps_its_path_and_the_header_goes() {
    let layer = reported()
        .share(SendStrategy::NoCork, 100.0)
        .trusted("0.0.0.0/0".parse().unwrap())
        .token(TOKEN)
        .build()
        .unwrap();
    let (addr, accepted) =
        start_with(layer.layer(service_fn(mirror)), |extensions, _| drop(extensions.remove::<Connection>())).await;
    let mut client = Client::one(FRIEND, addr).await;
    let answer = client.ask(&[(ASK, &format!("no-sendfile;{TOKEN}"))]).await;
    assert_eq!((field(&answer, REPORT), answer.body().as_str()), (None, "not seen"));
    assert_eq!(accepted.lock().unwrap()[0].send_strategy(), Some(SendStrategy::Auto));
}

#[test]
fn axum_tells_a_canary_its_connection() {
    on_both(|| async {
        let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let layer = reported().share(SendStrategy::NoCork, 25.0).trusted("127.0.0.2".parse().unwrap()).token(TOKEN);
        let layer = layer.build().unwrap();
        let app = axum::Router::new().fallback(async |request: axum::extract::Request| mirror(request).await.unwrap());
        let app = app.layer(layer.clone()).into_make_service_with_connect_info::<millstream::server::Connection>();
        tokio::spawn(axum::serve(listener, app).into_future());
        let mut client = Client::one(FRIEND, addr).await;
        assert_eq!(path(&client.ask(&[(ASK, &format!("no-sendfile;{TOKEN}"))]).await), "no-sendfile");
        for _ in 0..100 {
            client.ask(&[]).await;
        }
        assert_eq!(layer.handle().state().paths[SendStrategy::NoCork as usize].requests, 25);
        let mut two = Client::two(STRANGER, addr).await;
        let first = path(&two.ask(&[]).await);
        for _ in 0..20 {
            assert_eq!(path(&two.ask(&[]).await), first);
        }
    });
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for (builder, why) in [
        (reported().share(SendStrategy::NoSendfile, 101.0), "from 0 to 100"),
        (reported().share(SendStrategy::NoSendfile, f64::NAN), "from 0 to 100"),
        (reported().share(SendStrategy::Auto, 10.0), "the rest is for this path"),
        (reported().share(SendStrategy::NoSendfile, 60.0).share(SendStrategy::NoCork, 60.0), "leave 40 %"),
        (reported().token("short"), "16 to 128"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(why), "{error}");
    }
}
