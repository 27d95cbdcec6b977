//! A subscription as clients and workers see it.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::config::Delivery;
use super::subscription::{Report, Subscription, Wake};
use super::webhook::Key;
use crate::fields::{self, offset_text};

impl Subscription {
    fn token(&self, key: &Key, id: &str) -> String {
        key.token(&[&self.root, &self.id, &self.generation.to_string(), id])
    }

    /// Returns whether a token is that of the wake of a report, or of the current one.
    pub(crate) fn is_token(&self, token: &str, report: &Report, key: &Key) -> bool {
        let is_of =
            |generation: u64, id: &str| key.is_token(token, &[&self.root, &self.id, &generation.to_string(), id]);
        is_of(report.generation, &report.wake_id)
            || self.wake.as_ref().is_some_and(|wake| is_of(self.generation, &wake.id))
    }

    /// Returns the body of the request to a worker, and the time that it has: it ends before the lease, so that an answer
    /// that does not come is a failure, and no other wake is made at once.
    pub(crate) fn notification(&self, wake: &Wake, key: &Key, now: i64) -> (Bytes, Duration) {
        let until = self.wake.as_ref().and_then(|wake| wake.until).unwrap_or(now);
        let left = u64::try_from(until - now).unwrap_or(0);
        let body = json!({
            "subscription_id": self.id,
            "wake_id": wake.id,
            "generation": wake.generation,
            "streams": wake.streams,
            "callback_url": format!("{}/__ds/subscriptions/{}/callback", self.url, fields::encoded(&self.id)),
            "callback_token": key.token(&[&self.root, &self.id, &wake.generation.to_string(), &wake.id]),
        });
        (body.to_string().into(), Duration::from_millis(left - left / 10))
    }

    /// Returns the stream that workers of a pull-wake subscription read, and the event for it.
    pub(crate) fn event(&self, wake: &Wake, now: i64) -> Option<(String, String)> {
        let Delivery::PullWake { wake_stream } = &self.config.delivery else { return None };
        let stream = wake.ends.first().map(|(path, ..)| path);
        let event = json!({
            "type": "wake",
            "subscription_id": self.id,
            "stream": stream,
            "generation": wake.generation,
            "ts": now,
        });
        Some((format!("{}/{wake_stream}", self.root), event.to_string()))
    }

    /// Returns the answer to a worker that has the wake.
    pub(crate) fn claimed(&self, key: &Key) -> Option<Value> {
        let wake = self.wake.as_ref()?;
        Some(json!({
            "wake_id": wake.id,
            "generation": self.generation,
            "token": self.token(key, &wake.id),
            "streams": self.streams(),
            "lease_ttl_ms": self.config.lease_ttl_ms,
        }))
    }

    pub(crate) fn streams(&self) -> Value {
        let streams = self.links.iter().map(|(path, link)| {
            json!({
                "path": path,
                "link_type": if link.is_explicit { "explicit" } else { "glob" },
                "acked_offset": offset_text(link.acked),
                "tail_offset": offset_text(link.end),
                "has_pending": link.is_pending(),
            })
        });
        streams.collect()
    }

    /// Returns the subscription as clients see it.
    pub(crate) fn describe(&self, key: &Key) -> Value {
        let (kind, webhook, wake_stream) = match &self.config.delivery {
            Delivery::Webhook { webhook } => {
                let set = format!("{}/__ds/jwks.json", self.url);
                let signing = json!({ "alg": "ed25519", "kid": key.id, "jwks_url": set });
                ("webhook", json!({ "url": webhook.url, "signing": signing }), Value::Null)
            }
            Delivery::PullWake { wake_stream } => ("pull-wake", Value::Null, json!(wake_stream)),
        };
        json!({
            "id": self.id,
            "subscription_id": self.id,
            "type": kind,
            "pattern": self.config.pattern,
            "streams": self.streams(),
            "webhook": webhook,
            "wake_stream": wake_stream,
            "lease_ttl_ms": self.config.lease_ttl_ms,
            "created_at": fields::time_text(self.created).as_ref().and_then(|time| time.to_str().ok()),
            "status": if self.retry.is_some() { "failed" } else { "active" },
            "description": self.config.description,
        })
    }
}
