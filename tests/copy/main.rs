//! Copies from everything to everything: every byte once and in order, by the expected path, with and without
//! interruptions.

mod cancel;
mod counts;
mod ends;
mod kinds;
mod options;
mod refused;
mod relay;
mod resets;

/// Returns bytes without repetitions that a test could miss. Computed once, because it is slow.
fn noise(len: usize) -> &'static [u8] {
    static NOISE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| testkit::noise(10 << 20));
    &NOISE[..len]
}
