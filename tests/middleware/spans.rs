//! The span of a request. Interest in spans is per process, so the test runs in its own.

use super::*;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

use testkit::alone;

#[derive(Default)]
struct Seen {
    name: &'static str,
    fields: BTreeMap<&'static str, String>,
    entered: bool,
    closed: bool,
    inside: bool,
}

#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Seen>>);

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Watch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "millstream" || metadata.target() == module_path!()
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = self.0.lock().unwrap();
        seen.name = span.metadata().name();
        span.record(&mut Fields(&mut seen.fields));
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut self.0.lock().unwrap().fields));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.inside = seen.entered;
    }
    fn enter(&self, _: &Id) {
        self.0.lock().unwrap().entered = true;
    }
    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().entered = false;
    }
    fn try_close(&self, _: Id) -> bool {
        self.0.lock().unwrap().closed = true;
        true
    }
}

#[test]
fn a_request_is_a_span_that_says_how_it_ended() {
    if alone::ran_in_child() {
        return;
    }
    let watch = Watch::default();
    with_default(watch.clone(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let service = tower::service_fn(async |_: Request<()>| {
                tracing::info!("at work");
                let mut answer = answer("span", frames([Ok(Bytes::from("hello")), Ok(Bytes::from("!"))]));
                answer.headers_mut().insert("x-request-id", "of-stamp".parse().unwrap());
                Ok::<_, Infallible>(answer)
            });
            let response = Measure::new().layer(service).oneshot(Request::new(())).await.unwrap();
            response.into_body().collect().await.unwrap();
        });
    });
    let seen = watch.0.lock().unwrap();
    assert_eq!(seen.name, "http.request");
    assert!(seen.inside && seen.closed && !seen.entered);
    for (field, value) in [
        ("method", "\"GET\""),
        ("version", "\"1.1\""),
        ("request_id", "of-stamp"),
        ("status", "200"),
        ("bytes", "6"),
        ("frames", "2"),
        ("outcome", "\"complete\""),
    ] {
        assert_eq!(seen.fields.get(field).map(String::as_str), Some(value), "{field}: {:?}", seen.fields);
    }
    assert!(seen.fields["duration"].parse::<f64>().is_ok_and(|seconds| seconds > 0.0), "{:?}", seen.fields);
}
