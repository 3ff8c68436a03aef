//! Network, storage, time, names and power of the appliance: typed D-Bus proxies, pure planners, thin drivers.

pub mod bus;
mod machine;
pub mod names;
pub mod network;
pub mod time;

pub use machine::ApplianceMachine;
pub mod firewall;
pub mod storage;
