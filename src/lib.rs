//! millstream
#[cfg(not(target_os = "linux"))]
compile_error!("millstream needs Linux");

mod kernel;

pub use kernel::caps::{Capabilities, Support};
