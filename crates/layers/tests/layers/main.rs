//! `middleware` over real connections: trusted headers, the path of a response, and breakers.

mod breakers;
mod canaries;
mod costs;
mod hygiene;
mod keep_alive;
mod live;
mod servers;
mod stamps;
