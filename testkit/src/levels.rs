//! Chains of sources of errors.

use std::error::Error;

/// Returns the first level of an error whose text contains that of its source, so that a report would show it twice.
///
/// # Panics
///
/// If a level has no text.
pub fn repeated(error: &(dyn Error + 'static)) -> Option<String> {
    let mut level = error;
    assert!(!level.to_string().is_empty(), "{level:?}");
    while let Some(source) = level.source() {
        let (outer, inner) = (level.to_string(), source.to_string());
        if outer.contains(&inner) {
            return Some(format!("{outer:?} repeats its source {inner:?}"));
        }
        level = source;
    }
    None
}
