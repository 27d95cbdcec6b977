//! A client of an event stream that is killed, and continues behind the last event that it has got completely.

use http_body_util::BodyExt;
use millstream::sse::EventBody;
use tokio::time::{Instant, sleep_until};

/// The bytes of whole events, without the end of a response.
#[derive(Debug, Default)]
pub struct Client {
    pub bytes: Vec<u8>,
    pub last: Option<String>,
    partial: Vec<u8>,
}

impl Client {
    /// Forgets the part of an event that a new response repeats.
    pub fn reconnects(&mut self) {
        self.partial.clear();
    }

    pub fn feed(&mut self, frame: &[u8]) {
        self.partial.extend_from_slice(frame);
        while let Some(end) = self.partial.windows(2).position(|end| end == b"\n\n") {
            let event: Vec<u8> = self.partial.drain(..end + 2).collect();
            let id = std::str::from_utf8(&event).unwrap().lines().find_map(|line| line.strip_prefix("id: "));
            if let Some(id) = id {
                self.last = Some(id.to_owned());
                self.bytes.extend(event);
            } else {
                assert!(event.starts_with(b"retry: "), "{}", String::from_utf8_lossy(&event));
            }
        }
    }

    /// Reads until the end, or until `until` if there is one, which may tear a frame. Returns whether the response has
    /// ended.
    pub async fn read(&mut self, mut body: EventBody, until: Option<Instant>, torn: bool) -> bool {
        self.reconnects();
        let never = async { std::future::pending().await };
        let timer = async { if let Some(until) = until { sleep_until(until).await } else { never.await } };
        let mut timer = std::pin::pin!(timer);
        loop {
            tokio::select! {
                biased;
                () = &mut timer => return false,
                frame = body.frame() => match frame {
                    Some(frame) => {
                        let frame = frame.unwrap().into_data().unwrap();
                        let torn = torn && until.is_some() && frame.len() % 3 == 0;
                        self.feed(if torn { &frame[..frame.len() / 2] } else { &frame });
                        if torn {
                            return false;
                        }
                    }
                    None => return true,
                },
            }
        }
    }
}
