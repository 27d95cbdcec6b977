//! millstream
#[cfg(not(target_os = "linux"))]
compile_error!("millstream needs Linux");

mod buf;
mod kernel;
pub mod observe;

pub use kernel::caps::{Capabilities, Support};
