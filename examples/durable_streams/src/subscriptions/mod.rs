//! Subscriptions: cursors over streams that wake workers when there is more to read. Sections 6 and 7 of the protocol.
//!
//! A subscription is a file, which is replaced when its state changes: before a worker hears of the change. It has a
//! task, which makes wakes, delivers them and ends leases.
//!
//! - `config`: what a client asks for, and what it may ask for.
//! - `subscription`: the state of one, and the rules about it.
//! - `views`: what clients and workers see of it.
//! - `webhook`: requests to workers, and their signatures.
//! - this file: all subscriptions, their files, and their tasks.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use millstream::fs::Replace;
use tokio::sync::Notify;

use crate::json;
use crate::refusal::Refusal;
use crate::store::{Append, Store, Stream, Watch, now};
use subscription::Wake;
use webhook::{Key, Sender};

mod config;
mod subscription;
mod views;
mod webhook;

pub(crate) use config::{Config, Delivery, Invalid, STREAMS_MAX, stream_paths};
pub(crate) use subscription::{Denied, Report, Subscription};

/// Subscriptions of a server. Each has a task.
const SUBSCRIPTIONS_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Subscriptions {
    store: Arc<Store>,
    dir: PathBuf,
    pub(crate) key: Key,
    pub(crate) sender: Sender,
    /// Scheme and host by which clients reach the server.
    pub(crate) public: Option<String>,
    table: RwLock<HashMap<Name, Arc<Entry>>>,
}

/// The path of the streams and the id.
pub(crate) type Name = (Box<str>, Box<str>);

#[derive(Debug)]
pub(crate) struct Entry {
    path: PathBuf,
    state: Mutex<Subscription>,
    /// Held while the file is written, so that the last state is the last one that is written.
    saves: tokio::sync::Mutex<()>,
    pub(crate) changed: Notify,
}

impl Subscriptions {
    /// Reads the subscriptions of a directory, and begins their tasks.
    pub(crate) fn open(
        store: Arc<Store>,
        dir: &Path,
        local: bool,
        public: Option<String>,
    ) -> Result<Arc<Self>, String> {
        let dir = dir.join("subscriptions");
        let of = |path: &Path| {
            let path = path.display().to_string();
            move |e: io::Error| format!("{path}: {e}")
        };
        fs::create_dir_all(&dir).map_err(of(&dir))?;
        let key = Key::open(&dir.join("key")).map_err(of(&dir.join("key")))?;
        let mut table = HashMap::new();
        for file in fs::read_dir(&dir).map_err(of(&dir))? {
            let path = file.map_err(of(&dir))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let bytes = fs::read(&path).map_err(of(&path))?;
            let mut subscription: Subscription =
                serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display()))?;
            subscription.restore(&store);
            table.insert(subscription.name(), Arc::new(Entry::new(path, subscription)));
        }
        let sender = Sender::new(local);
        let subscriptions = Arc::new(Self { store, dir, key, sender, public, table: RwLock::default() });
        for entry in table.values() {
            tokio::spawn(Arc::clone(&subscriptions).drive(Arc::clone(entry)));
        }
        *subscriptions.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        let watcher = Arc::clone(&subscriptions) as Arc<dyn Watch>;
        subscriptions.store.journal.watcher.set(watcher).map_err(|_| "the store has subscriptions already")?;
        Ok(subscriptions)
    }

    fn table(&self) -> RwLockReadGuard<'_, HashMap<Name, Arc<Entry>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, name: &Name) -> Option<Arc<Entry>> {
        self.table().get(name).filter(|entry| !entry.state().is_deleted()).cloned()
    }

    /// Adds a subscription and begins its task. The streams that are there are linked at their ends, before an append
    /// can be noted. Returns the one with this name if there is one.
    pub(crate) fn insert(
        self: &Arc<Self>,
        mut subscription: Subscription,
    ) -> Result<Result<Arc<Entry>, Arc<Entry>>, Refusal> {
        let path = self.dir.join(self.key.file_name(&subscription.root, &subscription.id));
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = table.get(&subscription.name()) {
            return match entry.state().is_deleted() {
                true => Err(Refusal::conflict("a subscription with this id is being deleted")),
                false => Ok(Err(Arc::clone(entry))),
            };
        }
        if table.len() >= SUBSCRIPTIONS_MAX {
            let text = "the server has its maximum of subscriptions";
            return Err(Refusal::new(http::StatusCode::INSUFFICIENT_STORAGE, text));
        }
        subscription.link_all(&self.store);
        let name = subscription.name();
        let entry = Arc::new(Entry::new(path, subscription));
        table.insert(name, Arc::clone(&entry));
        tokio::spawn(Arc::clone(self).drive(Arc::clone(&entry)));
        Ok(Ok(entry))
    }

    /// Removes a subscription and its file, also if the caller is dropped. Returns whether there was one. Its name is free
    /// again once the file is gone.
    pub(crate) async fn remove(self: &Arc<Self>, name: Name) -> io::Result<bool> {
        let Some(entry) = self.table().get(&name).cloned() else { return Ok(false) };
        entry.state().delete();
        entry.changed.notify_one();
        let all = Arc::clone(self);
        let removed = tokio::spawn(async move {
            let _saves = entry.saves.lock().await;
            let (path, dir) = (entry.path.clone(), all.dir.clone());
            let removed = tokio::task::spawn_blocking(move || {
                match fs::remove_file(path) {
                    // It was not written yet.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    removed => removed?,
                }
                fs::File::open(dir)?.sync_all()
            });
            removed.await.map_err(io::Error::other)??;
            // A second removal, which waited, must not remove a subscription that was made since.
            let mut table = all.table.write().unwrap_or_else(PoisonError::into_inner);
            if table.get(&name).is_some_and(|there| Arc::ptr_eq(there, &entry)) {
                table.remove(&name);
            }
            Ok(true)
        });
        removed.await.map_err(io::Error::other)?
    }

    /// Makes wakes, delivers them, and ends leases, until the subscription is deleted.
    async fn drive(self: Arc<Self>, entry: Arc<Entry>) {
        loop {
            let (wake, until) = {
                let mut state = entry.state();
                if state.is_deleted() {
                    return;
                }
                (state.wake(now(), &self.store), state.deadline())
            };
            if let Some(wake) = wake {
                match entry.save().await {
                    Ok(()) => drop(tokio::spawn(Arc::clone(&self).deliver(Arc::clone(&entry), wake))),
                    Err(e) => {
                        eprintln!("error: {}: {e}", entry.path.display());
                        entry.state().failed(&wake, now());
                    }
                }
                continue;
            }
            let time = until.map_or(Duration::MAX, |until| {
                Duration::from_millis(until.saturating_sub(now()).try_into().unwrap_or(0))
            });
            let _ = tokio::time::timeout(time, entry.changed.notified()).await;
        }
    }

    /// Tells a worker of a wake, and notes the outcome.
    async fn deliver(self: Arc<Self>, entry: Arc<Entry>, wake: Wake) {
        let delivery = entry.state().config.delivery.clone();
        let delivered = match &delivery {
            Delivery::Webhook { webhook } => {
                let (body, time) = entry.state().notification(&wake, &self.key, now());
                self.sender.send(&webhook.url, body, &self.key, time).await
            }
            Delivery::PullWake { .. } => self.append(&entry, &wake).await.map(|()| false),
        };
        {
            let mut state = entry.state();
            match delivered {
                Ok(is_done) => state.delivered(&wake, is_done),
                Err(e) => {
                    eprintln!("subscription {}: a wake was not delivered, and is tried again: {e}", state.id);
                    state.failed(&wake, now());
                }
            }
        }
        if let Err(e) = entry.save().await {
            eprintln!("error: {}: {e}", entry.path.display());
        }
        entry.changed.notify_one();
    }

    /// Appends the event of a wake to the stream that workers read.
    async fn append(&self, entry: &Entry, wake: &Wake) -> Result<(), String> {
        let (path, event) = entry.state().event(wake, now()).ok_or("it is over")?;
        let data = json::messages(event.as_bytes())?;
        let stream = self.store.get(&path).map_err(|_| format!("there is no stream {path}"))?;
        stream.touch();
        let append = Append { content_type: "application/json", data: &data, close: false, seq: None, producer: None };
        let room = self.store.journal.room(append.len()).await;
        let (done, number) = stream.append(&self.store.journal, &append, room);
        self.store.journal.wait(number).await;
        done.map(drop).map_err(|refusal| format!("{path}: {refusal}"))
    }
}

impl Watch for Subscriptions {
    fn changed(&self, stream: &Stream) {
        for entry in self.table().values() {
            if entry.state().changed(stream) {
                entry.changed.notify_one();
            }
        }
    }

    fn removed(&self, stream: &Stream) {
        for entry in self.table().values() {
            entry.state().removed(stream);
        }
    }
}

impl Entry {
    fn new(path: PathBuf, subscription: Subscription) -> Self {
        Self { path, state: Mutex::new(subscription), saves: tokio::sync::Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, Subscription> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the state, unless the subscription was deleted.
    pub(crate) async fn save(&self) -> io::Result<()> {
        let _saves = self.saves.lock().await;
        let state = {
            let state = self.state();
            if state.is_deleted() {
                return Ok(());
            }
            serde_json::to_vec(&*state)?
        };
        Replace::new(&self.path).run(state).await.map(drop).map_err(io::Error::other)
    }
}
