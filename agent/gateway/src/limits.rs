//! The bounds of the data plane, in one place.

use std::time::Duration;

use warden_schedule::{Bounds, Policy};

/// Bounds of the data plane; the defaults are the product's.
#[derive(Clone, Debug)]
pub struct GatewayLimits {
    /// Most bytes of one request body.
    pub body: usize,
    /// Most bytes of all request bodies held at the same time; beyond it 503.
    pub all_bodies: usize,
    /// Longest pause between two pieces of a request body.
    pub body_pause: Duration,
    /// Longest time for a request body to arrive whole: 32 MiB over a slow line take less.
    pub body_whole: Duration,
    /// Longest time to connect to an engine.
    pub connect: Duration,
    /// Longest wait for the head of an engine's answer. Long: an answer that is not streamed has its head at its end.
    pub head: Duration,
    /// Longest pause between two pieces of an engine's answer.
    pub engine_pause: Duration,
    /// A stream that is silent for so long gets something that keeps it alive, and again after the same time.
    pub keep_alive: Duration,
    /// How many prompts may be counted at the same time.
    pub counts: usize,
    /// A client that reads nothing for so long is given up.
    pub client_pause: Duration,
    /// A request whose connection broke before any answer is tried once more if it broke within this time.
    pub retry_within: Duration,
    /// How long a streamed request may wait for its start when its client does not say.
    pub patience_streamed: Duration,
    /// The same for one that is not streamed: its client hears nothing meanwhile.
    pub patience_whole: Duration,
    /// The rule by which replicas are chosen.
    pub policy: Policy,
    /// Bounds of the scheduler.
    pub bounds: Bounds,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            body: 32 << 20,
            all_bodies: 1 << 30,
            body_pause: Duration::from_secs(60),
            body_whole: Duration::from_secs(600),
            connect: Duration::from_secs(2),
            head: Duration::from_secs(3600),
            engine_pause: Duration::from_secs(300),
            keep_alive: Duration::from_secs(10),
            counts: 8,
            client_pause: Duration::from_secs(60),
            retry_within: Duration::from_secs(120),
            patience_streamed: Duration::from_secs(240),
            patience_whole: Duration::from_secs(100),
            policy: Policy::default(),
            bounds: Bounds::default(),
        }
    }
}
