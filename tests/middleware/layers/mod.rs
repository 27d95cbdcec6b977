//! `middleware` over real connections: whose headers are believed, which path an answer takes, and when a path is given up.

mod breakers;
mod canaries;
mod costs;
mod hygiene;
mod live;
mod servers;
mod stamps;
