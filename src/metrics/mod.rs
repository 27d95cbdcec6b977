//! Numbers about the process for operators.
//!
//! | I want to | use |
//! |---|---|
//! | read counts since the start, and gauges of open objects | [`Snapshot`] |
//! | read results of requests, by labels | [`Requests`], which `middleware::Measure` fills |
//! | serve all numbers to Prometheus | [`prometheus_text`] |
//! | pass all numbers to the metrics facade | `record_metrics` (feature `metrics`) |

mod capabilities;
#[cfg(feature = "metrics")]
mod export;
mod text;

pub use crate::counters::{Bucket, Histogram, Quantile, Requests, ResponseOutcome, Responses, Snapshot};
#[cfg(feature = "metrics")]
pub use export::record_metrics;
pub use text::prometheus_text;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::caps::Capabilities;

    #[test]
    fn capabilities_are_exported() {
        let text = prometheus_text();
        for (name, support) in Capabilities::get().entries() {
            let line = format!("\nmillstream_capability{{name=\"{name}\",reason=\"");
            assert!(text.contains(&line), "{text}");
            assert_eq!(text.contains(&(line + "\"} 1\n")), support.is_yes(), "{name}");
        }
    }
}
