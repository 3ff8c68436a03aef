//! Embedded browser files. Each URL holds the hash of the bytes, so a browser may keep them for ever.

use axum::{
    extract::Path,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

pub(crate) struct Asset {
    url: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// `GET /ui/assets/{hash}/{name}`. A hash of another build is not found, never answered with other bytes.
pub(crate) async fn serve(Path((hash, name)): Path<(String, String)>) -> Response {
    let wanted = format!("/ui/assets/{hash}/{name}");
    match ASSETS.iter().find(|asset| asset.url == wanted) {
        Some(asset) => (
            [
                (header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type)),
                (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
            ],
            asset.bytes,
        )
            .into_response(),
        None => (StatusCode::NOT_FOUND, "This file belongs to another version of the console; reload the page.\n").into_response(),
    }
}
