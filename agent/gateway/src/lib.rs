//! The data plane: who asks, dialect, placement, engine client, stream back, exactly one Finished.
//!
//! In: requests under `/v1`, snapshots of keys and replicas. Out: the engine's answers, errors in the dialect of the path, one
//! `Finished` per admitted request. What engines speak goes through as bytes: scanned, spliced where needed, never rebuilt; Messages
//! and Responses are translated. It knows no database, no page and no system service; nothing on the path of a request waits for any
//! of them.

mod alarm;
mod body;
mod count;
mod deliver;
mod demand;
pub mod dialects;
mod engine;
mod errand;
mod errors;
mod faults;
mod flight;
mod flights;
mod forward;
mod gateway;
mod headers;
mod identify;
mod limits;
mod line;
mod listing;
mod multipart;
mod pass;
mod patience;
mod places;
mod refusal;
mod routes;
mod routing;
mod runaway;
mod scan;
mod spliced;
mod stall;
mod tap;
mod wish;

pub use flights::FlightTable;
pub use gateway::{Gateway, GatewayParts};
pub use limits::GatewayLimits;
pub use stall::Impatient;
