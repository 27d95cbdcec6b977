//! Requests about subscriptions: of clients, who make them, and of workers, who report.

use std::collections::BTreeSet;

use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use millstream::server::RequestBody;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::{self, Body};
use crate::fields::{self, reserved};
use crate::refusal::Refusal;
use crate::service::{App, NO_STORE};
use crate::store::now;
use crate::subscriptions::{Config, Delivery, Denied, Entry, Invalid, Report, STREAMS_MAX, Subscription, stream_paths};

/// Bytes of an id, and of the name of a worker.
const NAME_MAX: usize = 256;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const KEYS: HeaderValue = HeaderValue::from_static("application/jwk-set+json");
const KEYS_KEPT: HeaderValue = HeaderValue::from_static("public, max-age=300");

type Answer = Result<Response<Body>, Refusal>;

#[derive(Deserialize)]
struct Streams {
    streams: BTreeSet<Box<str>>,
}

#[derive(Deserialize)]
struct Claim {
    worker: Box<str>,
}

impl App {
    /// Answers a request for a path with the reserved segment.
    pub(crate) async fn control(&self, request: Request<RequestBody>) -> Answer {
        let (parts, body) = request.into_parts();
        let (root, rest) = reserved(parts.uri.path()).unwrap_or_default();
        let all = &self.subscriptions;
        let mut segments = rest.splitn(4, '/');
        let (kind, id) = (segments.next().unwrap_or_default(), segments.next());
        let (action, last) = (segments.next(), segments.next());
        if (kind, id) == ("jwks.json", None) {
            return match parts.method {
                Method::GET | Method::HEAD => Ok(keys(all.key.set())),
                _ => Err(not_allowed("GET, HEAD")),
            };
        }
        let id = id.filter(|_| kind == "subscriptions").and_then(fields::decoded);
        let Some(id) = id.filter(|id| (1..=NAME_MAX).contains(&id.len())) else {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such part of the protocol"));
        };
        let name = (Box::from(root), Box::from(id));
        let (bytes, _permit) = self.body(body).await?;
        if (&parts.method, action) == (&Method::PUT, None) {
            return self.put(&parts, &name.0, &name.1, &bytes).await;
        }
        let not_found = || problem(StatusCode::NOT_FOUND, "SUBSCRIPTION_NOT_FOUND", None);
        if (&parts.method, action) == (&Method::DELETE, None) {
            let removed = all.remove(name).await.map_err(|e| not_kept(&e))?;
            return removed.then(|| body::status(StatusCode::NO_CONTENT)).ok_or_else(not_found);
        }
        let entry = all.get(&name).ok_or_else(not_found)?;
        match (&parts.method, action, last) {
            (&(Method::GET | Method::HEAD), None, None) => {
                Ok(json_answer(StatusCode::OK, &entry.state().describe(&all.key)))
            }
            (&Method::POST, Some("streams"), None) => {
                let named = stream_paths(parse::<Streams>(&bytes)?.streams).map_err(invalid)?;
                {
                    let mut state = entry.state();
                    if state.named() + named.len() > STREAMS_MAX {
                        return Err(Refusal::bad("the subscription has too many streams"));
                    }
                    state.name_streams(named, &self.store);
                }
                kept(&entry, body::status(StatusCode::NO_CONTENT)).await
            }
            (&Method::DELETE, Some("streams"), Some(path)) => {
                let path = fields::decoded(path).ok_or_else(|| Refusal::bad("the path is malformed"))?;
                entry.state().unname_stream(path.trim_start_matches('/'));
                kept(&entry, body::status(StatusCode::NO_CONTENT)).await
            }
            (&Method::POST, Some("claim"), None) => {
                let Claim { worker } = parse(&bytes)?;
                if !(1..=NAME_MAX).contains(&worker.len()) {
                    return Err(Refusal::bad("the name of the worker is too short or too long"));
                }
                only(&entry, false)?;
                let answer = {
                    let mut state = entry.state();
                    state.claim(&worker, now(), &self.store).map_err(denied)?;
                    json_answer(StatusCode::OK, &state.claimed(&all.key).unwrap_or_default())
                };
                kept(&entry, answer).await
            }
            (&Method::POST, Some(action @ ("callback" | "ack" | "release")), None) => {
                let report: Report = parse(&bytes)?;
                only(&entry, action == "callback")?;
                let answer = {
                    let mut state = entry.state();
                    let is_token = bearer(&parts.headers).is_some_and(|token| state.is_token(token, &report, &all.key));
                    if !is_token {
                        return Err(problem(StatusCode::UNAUTHORIZED, "TOKEN_INVALID", None));
                    }
                    match action {
                        "release" => {
                            state.release(&report, now()).map_err(denied)?;
                            body::status(StatusCode::NO_CONTENT)
                        }
                        _ => {
                            let next = state.report(&report, now()).map_err(denied)?;
                            json_answer(StatusCode::OK, &json!({ "ok": true, "next_wake": next }))
                        }
                    }
                };
                kept(&entry, answer).await
            }
            (_, None, None) => Err(not_allowed("GET, HEAD, PUT, DELETE")),
            (_, Some("streams"), Some(_)) => Err(not_allowed("DELETE")),
            (_, Some("streams" | "claim" | "callback" | "ack" | "release"), None) => Err(not_allowed("POST")),
            _ => Err(Refusal::new(StatusCode::NOT_FOUND, "subscriptions have no such part")),
        }
    }

    /// Makes a subscription, or finds the one with the same configuration.
    async fn put(&self, parts: &Parts, root: &str, id: &str, body: &[u8]) -> Answer {
        let all = &self.subscriptions;
        let config = Config::parse(body, all.sender.local).map_err(invalid)?;
        let origin = match &all.public {
            Some(public) => public.clone(),
            None => format!("http://{}", fields::host(&parts.uri, &parts.headers)),
        };
        let new = Subscription::new(root, id, &format!("{origin}{root}"), config.clone(), now());
        match all.insert(new)? {
            Err(there) if there.state().config != config => {
                Err(problem(StatusCode::CONFLICT, "SUBSCRIPTION_ALREADY_EXISTS", None))
            }
            Err(there) => {
                // Whoever made it may not have written it.
                there.save().await.map_err(|e| not_kept(&e))?;
                Ok(json_answer(StatusCode::OK, &there.state().describe(&all.key)))
            }
            Ok(entry) => {
                if let Err(e) = entry.save().await {
                    let name = entry.state().name();
                    let _ = all.remove(name).await;
                    return Err(not_kept(&e));
                }
                Ok(json_answer(StatusCode::CREATED, &entry.state().describe(&all.key)))
            }
        }
    }
}

/// Answers once the state is on the disk. Its task hears of the change also if the caller is dropped meanwhile.
async fn kept(entry: &Entry, answer: Response<Body>) -> Answer {
    entry.changed.notify_one();
    entry.save().await.map_err(|e| not_kept(&e))?;
    Ok(answer)
}

fn not_kept(error: &std::io::Error) -> Refusal {
    eprintln!("error: a subscription was not written: {error}");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the subscription could not be written")
}

/// Refuses what workers of the other kind of subscription do.
fn only(entry: &Entry, webhook: bool) -> Result<(), Refusal> {
    match matches!(entry.state().config.delivery, Delivery::Webhook { .. }) == webhook {
        true => Ok(()),
        false => Err(problem(StatusCode::BAD_REQUEST, "INVALID_REQUEST", Some("the subscription has another type"))),
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    let said = |e: serde_json::Error| problem(StatusCode::BAD_REQUEST, "INVALID_REQUEST", Some(&e.to_string()));
    serde_json::from_slice(body).map_err(said)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn invalid(invalid: Invalid) -> Refusal {
    let (code, text) = match &invalid {
        Invalid::Config(text) => ("INVALID_REQUEST", text),
        Invalid::Url(text) => ("WEBHOOK_URL_REJECTED", text),
    };
    problem(StatusCode::BAD_REQUEST, code, Some(text))
}

fn denied(denied: Denied) -> Refusal {
    match denied {
        Denied::Fenced => problem(StatusCode::CONFLICT, "FENCED", None),
        Denied::NothingPending => problem(StatusCode::CONFLICT, "NO_PENDING_WORK", None),
        Denied::Offset(text) => problem(StatusCode::CONFLICT, "INVALID_OFFSET", Some(&text)),
        Denied::Claimed { worker, generation } => {
            let error = json!({ "code": "ALREADY_CLAIMED", "current_holder": worker, "generation": generation });
            Refusal::json(StatusCode::CONFLICT, &json!({ "error": error }))
        }
    }
}

fn problem(status: StatusCode, code: &str, message: Option<&str>) -> Refusal {
    let mut error = json!({ "code": code });
    if let Some(message) = message {
        error["message"] = message.into();
    }
    Refusal::json(status, &json!({ "error": error }))
}

fn not_allowed(methods: &'static str) -> Refusal {
    let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not have this method");
    refusal.with(ALLOW, HeaderValue::from_static(methods))
}

fn json_answer(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(body::bytes(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

fn keys(set: Value) -> Response<Body> {
    let mut response = json_answer(StatusCode::OK, &set);
    response.headers_mut().insert(CONTENT_TYPE, KEYS);
    response.headers_mut().insert(CACHE_CONTROL, KEYS_KEPT);
    response
}
