//! `http::layer` over real connections: whose headers are believed, which path an answer takes, and when a path is given up.

#[path = "layers/breakers.rs"]
mod breakers;
#[path = "layers/canaries.rs"]
mod canaries;
#[path = "layers/costs.rs"]
mod costs;
#[path = "layers/hygiene.rs"]
mod hygiene;
#[path = "layers/live.rs"]
mod live;
#[path = "layers/servers.rs"]
mod servers;
#[path = "layers/stamps.rs"]
mod stamps;
mod support;
