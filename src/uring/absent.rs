//! Replaces this module in builds without the feature `fs`.

#[path = "no_driver.rs"]
pub(crate) mod driver;
#[path = "no_net.rs"]
pub(crate) mod net;
