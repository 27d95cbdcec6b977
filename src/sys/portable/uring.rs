//! Settings of rings. They have no effect, because there are none.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) entries: u32,
    pub(crate) single_thread: bool,
    pub(crate) workers: [u32; 2],
}
