//! The data plane: who asks, dialect, placement, engine client, stream back, exactly one Finished.
//!
//! In: requests under `/v1`, snapshots of keys and replicas. Out: the engine's answers as bytes, errors in OpenAI's shape, one
//! `Finished` per admitted request. Bodies and streams go through as bytes: scanned, spliced where needed, never rebuilt. It knows
//! no database, no page and no system service; nothing on the path of a request waits for any of them.

mod body;
mod demand;
pub mod dialects;
mod engine;
mod errors;
mod flight;
mod flights;
mod forward;
mod gateway;
mod headers;
mod identify;
mod limits;
mod listing;
mod multipart;
mod pass;
mod patience;
mod places;
mod refusal;
mod relay;
mod routes;
mod routing;
mod runaway;
mod scan;
mod tap;

pub use flights::FlightTable;
pub use gateway::{Gateway, GatewayParts};
pub use limits::GatewayLimits;
