//! Tower layers, for `http::serve`, axum and tonic alike.
//!
//! ```text
//!  request ─▶ measure ─▶ service       what became of it, in numbers and in a span
//! ```

mod measure;

pub use measure::{Measure, MeasureBody, MeasureFuture, MeasureService, Route};
