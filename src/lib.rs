//! millstream
#[cfg(not(target_os = "linux"))]
compile_error!("millstream needs Linux");

pub mod buf;
mod kernel;
pub mod net;
pub mod observe;
mod turn;

pub use kernel::caps::{Capabilities, Support};
