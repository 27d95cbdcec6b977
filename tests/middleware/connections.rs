//! The spans of connections and of their requests. Interest in spans is per process, so the test runs in its own.

use super::*;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

use testkit::alone;
use testkit::http::{h1, h2, request};

struct Seen {
    name: &'static str,
    parent: Option<usize>,
    fields: BTreeMap<&'static str, String>,
    closed: bool,
}

#[derive(Default)]
struct Tree {
    seen: Vec<Seen>,
    inside: Vec<usize>,
}

#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Tree>>);

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

fn index(id: &Id) -> usize {
    id.into_u64() as usize - 1
}

impl Subscriber for Watch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "millstream" && metadata.is_span()
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut tree = self.0.lock().unwrap();
        let parent = tree.inside.last().copied();
        let mut seen = Seen { name: span.metadata().name(), parent, fields: BTreeMap::new(), closed: false };
        span.record(&mut Fields(&mut seen.fields));
        tree.seen.push(seen);
        Id::from_u64(tree.seen.len() as u64)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().inside.push(index(id));
    }
    fn exit(&self, id: &Id) {
        assert_eq!(self.0.lock().unwrap().inside.pop(), Some(index(id)));
    }
    fn try_close(&self, id: Id) -> bool {
        self.0.lock().unwrap().seen[index(&id)].closed = true;
        true
    }
}

#[test]
fn requests_are_in_the_span_of_their_connection() {
    if alone::ran_in_child() {
        return;
    }
    let watch = Watch::default();
    let peers = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&peers);
    with_default(watch.clone(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let service = tower::service_fn(async |_: Request<_>| {
                Ok::<_, Infallible>(answer("connections", boxed(Full::from("hello"))))
            });
            let server = serve(listener, Measure::new().layer(service)).on_connection(move |_, accepted, addr| {
                told.lock().unwrap().push((accepted.handle().clone(), *addr));
            });
            tokio::spawn(server.into_future());
            let (mut one, mut two) = (h1(addr).await, h2(addr).await);
            for _ in 0..2 {
                one.ready().await.unwrap();
                one.send_request(request("/")).await.unwrap().into_body().collect().await.unwrap();
                two.send_request(request("/")).await.unwrap().into_body().collect().await.unwrap();
            }
            drop((one, two));
            while peers.lock().unwrap().iter().any(|(handle, _)| handle.stats().is_some()) {
                tokio::task::yield_now().await;
            }
        });
    });
    let (tree, peers) = (watch.0.lock().unwrap(), peers.lock().unwrap());
    let connections: Vec<_> = (0..tree.seen.len()).filter(|&at| tree.seen[at].name == "connection").collect();
    assert_eq!((connections.len(), peers.len()), (2, 2));
    for ((handle, addr), at) in peers.iter().zip(connections) {
        let span = &tree.seen[at];
        assert_eq!((&span.fields["id"], &span.fields["peer"]), (&handle.id().to_string(), &addr.to_string()));
        assert_eq!((span.parent, span.closed), (None, true));
        let inside = tree.seen.iter().filter(|seen| seen.parent == Some(at)).map(|seen| seen.name);
        assert_eq!(inside.collect::<Vec<_>>(), ["http.request"; 2]);
    }
    assert_eq!(tree.seen.len(), 6, "no other spans");
}
