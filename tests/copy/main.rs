//! Copies from everything to everything: every byte once and in order, by the way that was meant, interrupted or not.

mod cancel;
mod counts;
mod ends;
mod kinds;
mod options;
mod refused;
mod relay;
mod resets;

#[path = "../support/mod.rs"]
mod support;

/// Bytes that repeat nowhere a test would notice: made once, because that takes its time.
fn noise(len: usize) -> &'static [u8] {
    static NOISE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| support::noise(10 << 20));
    &NOISE[..len]
}
