//! Issues and alerts over ports in memory, as a script would use them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../../../tests/fakes/ports.rs"]
mod ports;
#[path = "control/script.rs"]
mod script;

use ports::{ALERT_SECRET, World};
use script::Script;
use serde_json::json;
use warden_domain::{
    access::Role,
    issue::{Fix, IssueCode},
    model::StateWord,
};

fn troubled() -> World {
    let world = World::claimed();
    let model = world.add_model("tiny", None, Some(StateWord::Failed));
    world.add_issue(IssueCode::ModelFailed, model.as_str(), "The model tiny failed.", Some(Fix::LoadModel(model.clone())));
    world.add_issue(IssueCode::DataDiskFull, "data", "The disk with the models is full.", None);
    world
}

#[tokio::test]
async fn a_script_reads_what_is_wrong_and_what_to_do() {
    let world = troubled();
    let list = Script::signed_in(&world).get("/api/issues").await.json;
    assert_eq!(list["count"], 2);
    let issue = &list["open"][0];
    assert_eq!((&issue["code"], &issue["severity"], &issue["fix"]), (&json!("model_failed"), &json!("error"), &json!("load_model")));
    assert_eq!(issue["resolved_at"], json!(null));
    assert!(issue["first_seen"].as_str().unwrap().ends_with('Z') && issue["hint"].as_str().unwrap().len() > 5);
    assert_eq!(Script::signed_in(&world).get("/api/issues?resolved=9999").await.code(), "invalid_value");
    assert_eq!(Script::anonymous(&world).get("/api/issues").await.status, 401);
}

#[tokio::test]
async fn a_fix_of_one_click_is_done_and_an_issue_without_one_says_so() {
    let world = troubled();
    let script = Script::signed_in(&world);
    assert_eq!(script.post("/api/issues/iss_model_failed/fix", &json!(null)).await.status, 202);
    assert_ne!(script.get("/api/models/mdl_tiny").await.json["status"], "failed");
    assert_eq!(script.post("/api/issues/iss_data_disk_full/fix", &json!(null)).await.code(), "conflict");
    assert_eq!(script.post("/api/issues/iss_gone/fix", &json!(null)).await.code(), "not_found");
}

#[tokio::test]
async fn a_dismissed_issue_stays_open_and_is_not_counted() {
    let world = troubled();
    let script = Script::signed_in(&world);
    let dismissed = script.post("/api/issues/iss_data_disk_full/dismiss", &json!({"reason": "disk ordered"})).await;
    assert_eq!((dismissed.status, &dismissed.json["dismissed"]["reason"]), (200, &json!("disk ordered")));
    let list = script.get("/api/issues").await.json;
    assert_eq!((&list["count"], list["open"].as_array().unwrap().len()), (&json!(1), 2));
    assert_eq!(script.delete("/api/issues/iss_data_disk_full/dismiss").await.json["dismissed"], json!(null));
    assert_eq!(script.post("/api/issues/iss_data_disk_full/dismiss", &json!({"why": "x"})).await.code(), "invalid_value");
}

#[tokio::test]
async fn the_secret_of_alerts_is_in_one_answer_only() {
    let world = troubled();
    let script = Script::signed_in(&world);
    assert_eq!(script.get("/api/alerts").await.json["config"]["has_secret"], false);
    let body = json!({"enabled": true, "url": "http://ops.example/", "codes": ["data_disk_full"]});
    let made = script.put("/api/alerts", &body).await;
    assert_eq!((made.status, &made.json["secret"], made.header("cache-control")), (200, &json!(ALERT_SECRET), "no-store".to_owned()));
    let again = script.put("/api/alerts", &body).await;
    assert_eq!(again.json["secret"], json!(null));
    let shown = script.get("/api/alerts").await;
    assert!(!shown.text.contains(ALERT_SECRET));
    assert_eq!(shown.json["config"]["codes"], json!(["data_disk_full"]));
    let unknown = script.put("/api/alerts", &json!({"enabled": true, "url": "http://x/", "codes": ["gremlins"]})).await;
    assert!(unknown.code() == "invalid_value" && unknown.message().contains("gremlins"));
    assert_eq!(script.post("/api/alerts/test", &json!(null)).await.status, 202);
}

#[tokio::test]
async fn a_viewer_reads_issues_but_neither_fixes_them_nor_sees_where_alerts_go() {
    let world = troubled();
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Viewer);
    let viewer = Script::signed_in(&world);
    assert_eq!(viewer.get("/api/issues").await.status, 200);
    for path in ["/api/issues/check", "/api/issues/iss_model_failed/fix", "/api/alerts/test"] {
        assert_eq!(viewer.post(path, &json!(null)).await.status, 403, "{path}");
    }
    assert_eq!(viewer.get("/api/alerts").await.status, 403);
    assert_eq!(viewer.put("/api/alerts", &json!({"enabled": false, "url": ""})).await.status, 403);
}
