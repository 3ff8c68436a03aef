//! Network, storage, time, names and power of the appliance: typed D-Bus proxies, pure planners, thin drivers.

pub mod firewall;
