//! millstream
#[cfg(not(target_os = "linux"))]
compile_error!("millstream needs Linux");

pub mod buf;
pub mod http;
mod kernel;
pub mod net;
pub mod observe;
pub mod testing;
mod turn;

pub use kernel::caps::{Capabilities, Support};
