//! GPU cards, read through NVML in a process of its own, because every call into a driver may hang for ever.
//!
//! The program `warden-gpu` ([`reader`]) takes a snapshot once a second and sends it to whoever is connected to its Unix socket, one
//! JSON line each ([`wire`]). When a call hangs it says which and since when, and repeats the last known facts. The agent's side is
//! [`GpuClient`]: it implements `warden_domain::gpu::Gpus`, reconnects, and never waits. This crate keeps no history and decides nothing.

mod client;
pub mod reader;
mod trust;
pub mod wire;

pub use client::{Child, GpuClient, Source};
