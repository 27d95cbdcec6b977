//! millstream
#[cfg(not(target_os = "linux"))]
compile_error!("millstream needs Linux");

mod buf;
pub mod http;
mod kernel;
/// Stand-in until the room is here.
pub mod net {
    pub use tokio::net::{TcpListener, TcpStream};
}
pub mod observe;
pub mod testing;

pub use kernel::caps::{Capabilities, Support};
