//! millstream
#[cfg(not(target_os = "linux"))]
compile_error!("millstream needs Linux");

mod buf;
pub mod fs;
pub mod http;
mod kernel;
pub mod observe;

pub use kernel::caps::{Capabilities, Support};
