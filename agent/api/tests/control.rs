//! The control API over ports in memory, as a script would use it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../../../tests/fakes/ports.rs"]
mod ports;
#[path = "control/script.rs"]
mod script;

use ports::{CLAIM_CODE, World, state_of};
use script::Script;
use serde_json::json;
use warden_domain::{Problem, ProblemKind, access::Role, change::Topic, engine::PackState, model::StateWord, storage::Role as Role2};

#[tokio::test]
async fn the_description_lists_every_path_and_no_other() {
    let description = Script::signed_in(&World::claimed()).get("/api/openapi.json").await.json;
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut paths: Vec<String> = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            paths.push(format!("{} {path}", method.to_uppercase()));
        }
    }
    paths.sort();
    let expected = [
        "DELETE /api/issues/{id}/dismiss",
        "DELETE /api/models/downloads/{id}",
        "DELETE /api/models/{id}",
        "DELETE /api/network/change",
        "DELETE /api/storage/volumes/{id}",
        "DELETE /api/tokens/{id}",
        "DELETE /api/updates/uploads/{id}",
        "GET /api/alerts",
        "GET /api/auth/reset",
        "GET /api/auth/session",
        "GET /api/csrf",
        "GET /api/events",
        "GET /api/hub",
        "GET /api/issues",
        "GET /api/models",
        "GET /api/models/candidates",
        "GET /api/models/discover",
        "GET /api/models/downloads",
        "GET /api/models/downloads/{id}",
        "GET /api/models/{id}",
        "GET /api/models/{id}/dp-routing",
        "GET /api/models/{id}/evidence",
        "GET /api/models/{id}/evidence/{name}/{file}",
        "GET /api/models/{id}/logs",
        "GET /api/models/{id}/settings",
        "GET /api/network",
        "GET /api/packs",
        "GET /api/setup/state",
        "GET /api/storage",
        "GET /api/storage/sources/{key}/models",
        "GET /api/system",
        "GET /api/system/gpus",
        "GET /api/tasks",
        "GET /api/tasks/{id}",
        "GET /api/time",
        "GET /api/tls",
        "GET /api/tokens",
        "GET /api/tokens/{id}",
        "GET /api/updates",
        "GET /api/updates/uploads/{id}",
        "GET /healthz",
        "PATCH /api/models/{id}/settings",
        "POST /api/alerts/test",
        "POST /api/auth/login",
        "POST /api/auth/logout",
        "POST /api/auth/reset",
        "POST /api/chat/completions",
        "POST /api/issues/check",
        "POST /api/issues/{id}/dismiss",
        "POST /api/issues/{id}/fix",
        "POST /api/models",
        "POST /api/models/downloads",
        "POST /api/models/downloads/{id}/pause",
        "POST /api/models/downloads/{id}/resume",
        "POST /api/models/fit-preview",
        "POST /api/models/{id}/load",
        "POST /api/models/{id}/reload",
        "POST /api/models/{id}/replicas/{number}/drain",
        "POST /api/models/{id}/unload",
        "POST /api/network/confirm",
        "POST /api/setup/claim",
        "POST /api/storage/adopt",
        "POST /api/storage/import",
        "POST /api/system/factory-reset",
        "POST /api/system/power-off",
        "POST /api/system/reboot",
        "POST /api/tasks/{id}/cancel",
        "POST /api/time/clock",
        "POST /api/tokens",
        "POST /api/updates/cancel",
        "POST /api/updates/check",
        "POST /api/updates/from-stick",
        "POST /api/updates/go-back",
        "POST /api/updates/install",
        "POST /api/updates/restart",
        "POST /api/updates/uploads",
        "POST /api/updates/uploads/{id}/take",
        "PUT /api/alerts",
        "PUT /api/hub",
        "PUT /api/network/hostname",
        "PUT /api/network/interfaces/{name}",
        "PUT /api/time",
        "PUT /api/tls",
        "PUT /api/updates",
        "PUT /api/updates/uploads/{id}",
    ];
    assert_eq!(paths, expected);
}

#[tokio::test]
async fn a_box_is_claimed_once_and_the_session_works_at_once() {
    let world = World::fresh();
    let script = Script::anonymous(&world);
    assert_eq!(script.get("/api/setup/state").await.json, json!({"step": "claim", "done": false}));
    let wrong = script.post("/api/setup/claim", &json!({"claim_code": "WRONG", "username": "ada", "password": "a long enough password"})).await;
    assert_eq!((wrong.status, wrong.code()), (403, "forbidden".to_owned()));
    let good = json!({"claim_code": CLAIM_CODE, "username": "ada", "password": "a long enough password"});
    let made = script.post("/api/setup/claim", &good).await;
    assert_eq!(made.status, 201);
    assert_eq!(made.json["role"], "admin");
    assert!(made.json["csrf"].as_str().unwrap().len() > 8 && made.header("set-cookie").contains("HttpOnly"));
    assert_eq!(script.post("/api/setup/claim", &good).await.code(), "conflict");
    let session = Script::with_cookie(&world, &made.header("set-cookie"));
    assert_eq!(session.get("/api/auth/session").await.json, json!({"id": "acc_ada", "username": "ada", "role": "admin"}));
    assert_eq!(session.get("/api/csrf").await.json["csrf"], made.json["csrf"]);
}

#[tokio::test]
async fn nothing_but_the_door_is_open_without_a_session() {
    let script = Script::anonymous(&World::claimed());
    assert_eq!(script.get("/healthz").await.json["ok"], true);
    assert_eq!(script.get("/healthz").await.json["gpu"], json!({"state": "unknown", "error": null, "since": null, "checked_at": null}));
    for path in
        ["/api/models", "/api/tokens", "/api/packs", "/api/csrf", "/api/auth/session", "/api/models/candidates", "/api/events", "/api/openapi.json"]
    {
        let refused = script.get(path).await;
        assert_eq!((refused.status, refused.code()), (401, "unauthorized".to_owned()), "{path}");
    }
    assert_eq!(script.post("/api/chat/completions", &json!({"model": "tiny", "messages": []})).await.status, 401);
}

#[tokio::test]
async fn a_body_that_is_wrong_is_answered_with_what_and_where() {
    let script = Script::signed_in(&World::claimed());
    for (body, status, words) in [
        ("{\"name\": ", 400, "not valid JSON"),
        ("name=app", 400, "line 1 column"),
        ("", 400, "empty"),
        ("{\"nom\": \"app\"}", 422, "expected `name`"),
        ("{\"name\": 5}", 422, "does not fit"),
        ("[]", 422, "does not fit"),
    ] {
        let refused = script.post_text("/api/tokens", body).await;
        assert_eq!(refused.status, status, "{body}");
        assert!(refused.message().contains(words), "{body}: {}", refused.message());
    }
    let huge = script.post_text("/api/tokens", &format!("{{\"name\": \"{}\"}}", "a".repeat(1 << 20))).await;
    assert_eq!((huge.status, huge.code()), (413, "body_too_large".to_owned()));
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_in_the_shape_of_the_api() {
    let script = Script::signed_in(&World::claimed());
    for path in ["/api/nope", "/api/models/x/y/z", "/api"] {
        let refused = script.get(path).await;
        assert_eq!((refused.status, refused.code()), (404, "not_found".to_owned()), "{path}");
    }
    let wrong = script.delete("/api/models").await;
    assert_eq!((wrong.status, wrong.code()), (405, "method_not_allowed".to_owned()));
}

#[tokio::test]
async fn a_key_is_shown_once_listed_without_its_secret_and_revoked_for_good() {
    let world = World::claimed();
    let script = Script::signed_in(&world);
    let made = script.post("/api/tokens", &json!({"name": "app"})).await;
    assert_eq!(made.status, 201);
    assert!(made.json["plaintext"].as_str().unwrap().starts_with("vw_"));
    let id = made.json["id"].as_str().unwrap().to_owned();
    assert_eq!(script.post("/api/tokens", &json!({"name": "app"})).await.code(), "conflict");

    let list = script.get("/api/tokens").await;
    assert_eq!(list.json["total"], 1);
    assert!(!list.text.contains("plaintext") && !list.text.contains(made.json["plaintext"].as_str().unwrap()));
    assert_eq!(list.json["items"][0]["last_used_at"], json!(null));

    assert_eq!(script.delete(&format!("/api/tokens/{id}")).await.status, 204);
    let token = script.get(&format!("/api/tokens/{id}")).await;
    assert_eq!(token.json["status"], "revoked");
    assert_eq!(script.get("/api/tokens/key_none").await.code(), "not_found");
}

#[tokio::test]
async fn a_model_is_registered_loaded_watched_unloaded_and_removed() {
    let world = World::claimed();
    world.lay_file("tiny", 97_933_721);
    let script = Script::signed_in(&world);
    let candidate = script.get("/api/models/candidates").await.json["candidates"][0].clone();
    assert_eq!(candidate["suggested_name"], "tiny");
    let made = script.post("/api/models", &json!({"path": candidate["path"], "slots": 2})).await;
    assert_eq!(made.status, 201);
    assert_eq!((&made.json["status"], &made.json["max_model_len"], &made.json["config"]["slots"]), (&json!("stopped"), &json!(null), &json!(2)));
    let url = format!("/api/models/{}", made.json["id"].as_str().unwrap());

    let accepted = script.post(&format!("{url}/load"), &json!({})).await;
    assert_eq!((accepted.status, &accepted.json["status"]), (202, &json!("loading")));
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let running = script.get(&url).await;
    assert_eq!((&running.json["status"], &running.json["max_model_len"]), (&json!("running"), &json!(null)));
    assert_eq!(running.json["state"]["context"], 4096);
    assert!(running.json["state"]["replicas"][0]["launch"].is_string());
    assert_eq!(script.post(&format!("{url}/load"), &json!({})).await.code(), "conflict");
    assert_eq!(script.delete(&url).await.code(), "conflict");
    assert_eq!(script.get(&format!("{url}/logs?lines=3")).await.json["lines"].as_array().unwrap().len(), 3);
    assert_eq!(script.get(&format!("{url}/logs?lines=0")).await.code(), "invalid_value");
    assert_eq!(script.get(&format!("{url}/logs?lines=many")).await.code(), "invalid_value");

    assert_eq!(script.post(&format!("{url}/unload"), &json!({})).await.status, 202);
    assert_eq!(script.delete(&url).await.status, 204);
    assert_eq!(script.get(&url).await.code(), "not_found");
}

#[tokio::test]
async fn a_failed_load_tells_why_on_the_api() {
    let world = World::claimed();
    let id = world.add_model("broken", None, None);
    world.edit(|m| m.states.insert(id.clone(), state_of(&id, StateWord::Failed)));
    let document = Script::signed_in(&world).get(&format!("/api/models/{id}")).await.json;
    assert_eq!(document["status"], "failed");
    assert!(document["last_error"].as_str().unwrap().contains("memory"));
    assert!(document["state"]["reason"]["hint"].is_string());
}

#[tokio::test]
async fn a_full_disk_and_a_missing_bus_keep_their_codes() {
    let world = World::claimed();
    let id = world.add_model("tiny", None, None);
    let script = Script::signed_in(&world);
    for (kind, status, code) in [
        (ProblemKind::DiskFull, 507, "disk_full"),
        (ProblemKind::SystemService, 503, "system_service"),
        (ProblemKind::BadModelFile, 422, "bad_model_file"),
    ] {
        world.edit(|m| m.fail_next = Some(Problem::new(kind, "It did not work.").hint("Do this.").retry_after(std::time::Duration::from_secs(7))));
        let refused = script.post(&format!("/api/models/{id}/load"), &json!({})).await;
        assert_eq!((refused.status, refused.code()), (status, code.to_owned()));
        assert_eq!((refused.json["detail"]["hint"].clone(), refused.header("retry-after")), (json!("Do this."), "7".to_owned()));
    }
}

#[tokio::test]
async fn a_viewer_reads_everything_and_changes_nothing() {
    let world = World::claimed();
    let id = world.add_model("tiny", None, None);
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Viewer);
    let viewer = Script::signed_in(&world);
    assert_eq!(viewer.get("/api/models").await.status, 200);
    for (path, body) in [
        ("/api/tokens".to_owned(), json!({"name": "x"})),
        ("/api/models".to_owned(), json!({"path": "x"})),
        (format!("/api/models/{id}/load"), json!({})),
        (format!("/api/models/{id}/unload"), json!({})),
    ] {
        assert_eq!(viewer.post(&path, &body).await.code(), "forbidden", "{path}");
    }
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Operator);
    assert_eq!(Script::signed_in(&world).post(&format!("/api/models/{id}/load"), &json!({})).await.status, 202);
    assert_eq!(Script::signed_in(&world).post("/api/tokens", &json!({"name": "x"})).await.code(), "forbidden");
}

#[tokio::test]
async fn a_build_in_progress_is_a_number_for_scripts() {
    let world = World::claimed();
    world.edit(|m| m.packs[0].state = PackState::Building { step: Some(123), of: Some(208), message: "compiling".to_owned() });
    let pack = Script::signed_in(&world).get("/api/packs").await.json["packs"][0].clone();
    assert_eq!((&pack["state"], &pack["step"], &pack["of"], &pack["digest"]), (&json!("building"), &json!(123), &json!(208), &json!(null)));
}

#[tokio::test]
async fn a_listener_hears_which_resource_changed() {
    let world = World::claimed();
    let mut line = Script::signed_in(&world).open("/api/events").await;
    world.changes.publish(Topic::Models);
    assert_eq!(line.next_event().await, "event: change\ndata: {\"topic\":\"models\"}\n\n");
}

#[tokio::test]
async fn a_chat_about_a_model_that_is_not_loaded_names_those_that_are() {
    let world = World::claimed();
    world.add_model("tiny", None, Some(StateWord::Running));
    let refused =
        Script::signed_in(&world).post("/api/chat/completions", &json!({"model": "nope", "messages": [{"role": "user", "content": "hi"}]})).await;
    assert_eq!(refused.status, 404);
    assert!(refused.json["error"]["message"].as_str().unwrap().contains("tiny"), "{}", refused.text);
}

#[tokio::test]
async fn the_pages_fallback_and_the_api_fit_into_one_router() {
    let world = World::claimed();
    let merged = script::router(&world).merge(axum::Router::new().fallback(|| async { "page" }));
    let answer = Script::signed_in(&world).through(merged, "/api/nope").await;
    assert_eq!(answer.code(), "not_found");
}

#[tokio::test]
async fn a_network_change_answers_with_the_way_to_confirm_it_and_a_plan_changes_nothing() {
    let world = World::claimed();
    let script = Script::signed_in(&world);
    let wanted = json!({"ipv4": {"method": "static", "address": "192.168.1.50", "prefix": 24, "gateway": "192.168.1.1"}});
    let plan = script.put("/api/network/interfaces/eth0?plan=1", &wanted).await;
    assert_eq!(plan.status, 200);
    assert_eq!(plan.json["console_urls"], json!(["http://192.168.1.50:8080/ui/"]));
    assert_eq!(script.get("/api/network").await.json["pending"], json!(null));
    let begun = script.put("/api/network/interfaces/eth0?confirm=60s", &wanted).await;
    assert_eq!(begun.status, 202);
    let token = begun.json["token"].as_str().unwrap().to_owned();
    assert_eq!(begun.json["confirm_urls"], json!([format!("http://192.168.1.50:8080/ui/network/confirm?token={token}")]));
    let nobody = Script::anonymous(&world);
    assert_eq!(nobody.post("/api/network/confirm", &json!({"token": "guess"})).await.status, 404);
    let kept = nobody.post("/api/network/confirm", &json!({"token": token})).await;
    assert_eq!((kept.status, &kept.json["kept"]), (200, &json!(true)), "the browser has no session on the new address");
}

#[tokio::test]
async fn network_name_and_clock_are_an_admins_business() {
    let world = World::claimed();
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Operator);
    let script = Script::signed_in(&world);
    for (path, body) in
        [("/api/network/interfaces/eth0", json!({})), ("/api/network/hostname", json!({"hostname": "a"})), ("/api/time", json!({"mode": "manual"}))]
    {
        assert_eq!(script.put(path, &body).await.status, 403, "{path}");
    }
    assert_eq!(script.delete("/api/network/change").await.status, 403);
    assert_eq!(Script::anonymous(&world).get("/api/network").await.status, 401);
}

#[tokio::test]
async fn settings_with_a_misspelt_field_or_a_bad_address_are_refused_by_name() {
    let script = Script::signed_in(&World::claimed());
    for (body, word) in [
        (json!({"ipv4": {"method": "static", "adress": "1.2.3.4", "prefix": 24}}), "adress"),
        (json!({"ipv4": {"method": "static", "address": "1.2.3.400", "prefix": 24}}), "IPv4"),
        (json!({"ipv4": {"method": "bootp"}}), "bootp"),
    ] {
        let refused = script.put("/api/network/interfaces/eth0", &body).await;
        assert_eq!(refused.status, 422);
        assert!(refused.message().contains(word), "{}", refused.message());
    }
    let name = script.put("/api/network/hostname", &json!({"hostname": "a b"})).await;
    assert_eq!((name.status, name.code()), (422, "invalid_value".to_owned()));
    let clock = script.post("/api/time/clock", &json!({"now": "2026-11-30T12:00:00Z"})).await;
    assert_eq!(clock.status, 409);
}

#[tokio::test]
async fn a_restart_is_noted_before_it_happens_and_only_admins_may() {
    let world = World::claimed();
    let script = Script::signed_in(&world);
    assert_eq!(script.post("/api/system/reboot", &json!({})).await.status, 202);
    assert_eq!(script.post("/api/system/power-off", &json!({})).await.status, 202);
    let deeds = world.memory.lock().unwrap().deeds.clone();
    assert!(deeds[0].contains("system.reboot") && deeds[1] == "Reboot" && deeds[3] == "Off", "{deeds:?}");
    if let Some(account) = world.memory.lock().unwrap().account.as_mut() {
        account.2 = Role::Operator;
    }
    for path in ["/api/system/reboot", "/api/system/power-off"] {
        assert_eq!(script.post(path, &json!({})).await.status, 403, "{path}");
    }
    assert_eq!(script.post("/api/system/factory-reset", &json!({"confirm": "reset", "keep_models": true})).await.status, 403);
    assert_eq!(world.memory.lock().unwrap().deeds.len(), 4);
}

#[tokio::test]
async fn a_factory_reset_needs_its_word_and_says_what_stays() {
    let world = World::claimed();
    let script = Script::signed_in(&world);
    let unconfirmed = script.post("/api/system/factory-reset", &json!({"confirm": "yes", "keep_models": false})).await;
    assert_eq!((unconfirmed.status, unconfirmed.code()), (422, "invalid_value".to_owned()));
    assert!(world.memory.lock().unwrap().deeds.is_empty());
    let going = script.post("/api/system/factory-reset", &json!({"confirm": "reset", "keep_models": false})).await;
    assert_eq!(going.status, 202);
    assert_eq!(going.json["reset"], "00112233445566778899aabbccddeeff");
    let deeds = world.memory.lock().unwrap().deeds.clone();
    assert_eq!((deeds[0].as_str(), deeds[2].as_str()), ("factory keep_models=false", "Reboot"));
}

#[tokio::test]
async fn a_password_reset_is_open_only_after_one_at_the_machine() {
    let world = World::claimed();
    let script = Script::anonymous(&world);
    let body = json!({"reset_code": CLAIM_CODE, "username": "ada", "password": "a long enough password"});
    assert_eq!(script.get("/api/auth/reset").await.json, json!({"open": false}));
    assert_eq!(script.post("/api/auth/reset", &body).await.status, 409);
    world.memory.lock().unwrap().reset_code = Some(CLAIM_CODE.to_owned());
    assert_eq!(script.get("/api/auth/reset").await.json, json!({"open": true}));
    let done = script.post("/api/auth/reset", &body).await;
    assert_eq!(done.status, 200);
    assert!(done.json["csrf"].is_string());
}

#[tokio::test]
async fn the_front_door_is_read_by_all_and_changed_by_admins() {
    let world = World::claimed();
    let script = Script::signed_in(&world);
    let body = json!({"names": ["llm.example.org"], "plain_http": true});
    let changed = script.put("/api/tls", &body).await;
    assert_eq!((changed.status, &changed.json["config"]), (200, &body));
    assert_eq!(changed.json["state"]["plain"]["state"], "open");
    assert_eq!(changed.json["state"]["authority_fingerprint"], ["A1"; 32].join(":"));
    assert!(changed.json["state"]["names"].as_array().unwrap().contains(&json!("llm.example.org")));
    assert_eq!(script.put("/api/tls", &json!({"names": [], "colour": "red"})).await.status, 422);
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Viewer);
    assert_eq!(script.get("/api/tls").await.status, 200);
    assert_eq!(script.put("/api/tls", &body).await.status, 403);
}

#[tokio::test]
async fn a_disk_with_something_on_it_is_only_erased_when_its_serial_number_is_repeated() {
    let world = World::claimed();
    world.plug("SYSTEM", Role2::System);
    world.plug("USED", Role2::Foreign);
    let script = Script::signed_in(&world);
    let plan = script.post("/api/storage/adopt?plan=1", &json!({"disk": "USED"})).await;
    assert_eq!((plan.status, plan.json["confirm_serial"].clone()), (200, json!(true)));
    let refused = script.post("/api/storage/adopt", &json!({"disk": "USED"})).await;
    assert_eq!((refused.status, refused.json["detail"]["param"].clone()), (422, json!("serial")));
    assert!(script.get("/api/tasks").await.json["tasks"].as_array().unwrap().is_empty(), "nothing was begun");
    let begun = script.post("/api/storage/adopt", &json!({"disk": "USED", "serial": "S-USED"})).await;
    assert_eq!(begun.status, 202);
    let task = begun.json["task"].as_str().unwrap().to_owned();
    assert_eq!(script.get(&format!("/api/tasks/{task}")).await.json["kind"], "adopt-disk");
    assert_eq!(script.post(&format!("/api/tasks/{task}/cancel"), &json!({})).await.status, 409);
    assert_eq!(script.post("/api/storage/adopt", &json!({"disk": "SYSTEM", "serial": "S-SYSTEM"})).await.status, 403);
    assert_eq!(script.post("/api/storage/adopt?plan=2", &json!({"disk": "USED"})).await.status, 422);
}

#[tokio::test]
async fn a_missing_disk_degrades_the_document_and_is_named_on_its_models() {
    let world = World::claimed();
    world.lose_volume("wm-00000001", "S-GONE");
    let id = world.add_model("away", None, None);
    world.edit(|m| m.models[0].config.path = "/media/wm-00000001/away.gguf".into());
    let script = Script::signed_in(&world);
    let storage = script.get("/api/storage").await.json;
    assert_eq!(storage["state"]["degraded"], true);
    assert!(storage["state"]["reasons"][0].as_str().unwrap().contains("S-GONE"));
    assert_eq!(storage["state"]["volumes"][0]["state"], "missing");
    assert_eq!(storage["state"]["volumes"][0]["free_bytes"], json!(null));
    let model = script.get(&format!("/api/models/{id}")).await.json;
    assert!(model["disk_missing"].as_str().unwrap().contains("S-GONE"), "{model}");
}

#[tokio::test]
async fn only_an_admin_erases_disks_imports_and_looks_at_sticks() {
    let world = World::claimed();
    world.plug("STICK", Role2::Foreign);
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Operator);
    let script = Script::signed_in(&world);
    for (path, body) in [
        ("/api/storage/adopt", json!({"disk": "STICK", "serial": "S-STICK"})),
        ("/api/storage/adopt?plan=1", json!({"disk": "STICK"})),
        ("/api/storage/import", json!({"source": "STICK", "file": "tiny.gguf"})),
    ] {
        assert_eq!(script.post(path, &body).await.status, 403, "{path}");
    }
    assert_eq!(script.get("/api/storage/sources/STICK/models").await.status, 403);
    assert_eq!(script.get("/api/storage").await.status, 200);
}

#[tokio::test]
async fn updates_are_set_followed_and_driven_by_a_script() {
    let world = World::claimed();
    let script = Script::signed_in(&world);
    let shown = script.get("/api/updates").await.json;
    assert_eq!((shown["state"]["phase"].as_str(), shown["config"]["automatic"].as_str()), (Some("idle"), Some("off")));
    assert_eq!(script.post("/api/updates/check", &json!({})).await.code(), "conflict");
    let config =
        json!({"channel_url": "https://u.example/stable", "channel": "stable", "automatic": "download", "window": {"from": "22:00", "to": "05:00"}});
    let set = script.put("/api/updates", &config).await;
    assert_eq!((set.status, set.json["window"]["from"].as_str(), &set.json["rate_limit_bytes_per_s"]), (200, Some("22:00"), &json!(null)));
    for bad in [
        json!({"channel": "stable", "automatic": "sometimes"}),
        json!({"channel": "stable", "automatic": "off", "window": {"from": "25:00", "to": "05:00"}}),
        json!({"channel": "stable", "automatic": "off", "colour": 1}),
    ] {
        assert_eq!(script.put("/api/updates", &bad).await.code(), "invalid_value", "{bad}");
    }
    assert_eq!(script.post("/api/updates/check", &json!({})).await.status, 202);
    assert_eq!(script.post("/api/updates/install", &json!({})).await.json["task"], "tsk_install");
    assert_eq!(script.post("/api/updates/restart", &json!({})).await.code(), "conflict");
    world.updating(warden_domain::update::UpdatePhase::Staged);
    assert_eq!(script.post("/api/updates/restart", &json!({})).await.status, 202);
    assert_eq!(script.post("/api/updates/from-stick", &json!({"install": true})).await.status, 202);
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Operator);
    for path in ["check", "restart", "cancel", "go-back"] {
        assert_eq!(script.post(&format!("/api/updates/{path}"), &json!({})).await.code(), "forbidden", "{path}");
    }
}

#[tokio::test]
async fn an_upload_goes_on_where_it_stands() {
    let world = World::claimed();
    let script = Script::signed_in(&world);
    let begun = script.post("/api/updates/uploads", &json!({"name": "a.wob", "size_bytes": 10})).await;
    assert_eq!((begun.status, begun.json["received_bytes"].as_u64()), (201, Some(0)));
    let path = format!("/api/updates/uploads/{}", begun.json["id"].as_str().unwrap());
    assert_eq!(script.put_bytes(&format!("{path}?offset=0"), b"01234").await.json["received_bytes"], 5);
    assert_eq!(script.put_bytes(&format!("{path}?offset=0"), b"01234").await.code(), "conflict");
    assert_eq!(script.put_bytes(&path, b"01234").await.code(), "invalid_value");
    assert_eq!(script.put_bytes(&format!("{path}?offset=5"), b"56789").await.json["received_bytes"], 10);
    assert_eq!(script.post(&format!("{path}/take"), &json!({"install": false})).await.status, 202);
    assert_eq!(script.delete(&path).await.status, 204);
    assert_eq!(script.get(&path).await.code(), "not_found");
}

#[tokio::test]
async fn settings_are_changed_one_by_one_and_say_when_they_count() {
    let world = World::claimed();
    let id = world.add_model("tiny", None, None);
    let script = Script::signed_in(&world);
    let url = format!("/api/models/{id}/settings");
    assert_eq!(script.get(&url).await.json["takes_effect"], "next_load");
    let changed = script.patch(&url, &json!({"replicas": 2, "gpus": ["GPU-a", "GPU-b"], "context": 2048})).await;
    assert_eq!((changed.status, &changed.json["replicas"], &changed.json["slots"]), (200, &json!(2), &json!(4)));
    assert_eq!(script.patch(&url, &json!({"context": null})).await.json["context"], json!(null));
    assert_eq!(script.get(&url).await.json["gpus"], json!(["GPU-a", "GPU-b"]));
    for (body, field) in [(json!({"replicas": 3}), "gpus"), (json!({"replicas": 0}), "replicas")] {
        let refused = script.patch(&url, &body).await;
        assert_eq!((refused.status, &refused.json["detail"]["param"]), (422, &json!(field)));
    }
    assert_eq!(script.patch(&url, &json!({"replica": 2})).await.status, 422, "a misspelt field");
    assert_eq!(script.get(&url).await.json["replicas"], 2, "a refused change wrote something");

    assert_eq!(script.post(&format!("/api/models/{id}/reload"), &json!({})).await.code(), "conflict");
    world.edit(|m| m.states.insert(id.clone(), state_of(&id, StateWord::Running)));
    let begun = script.post(&format!("/api/models/{id}/reload"), &json!({})).await;
    assert_eq!((begun.status, &begun.json["how"], &begun.json["why"]), (202, &json!("rolling"), &json!(null)));
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Operator);
    assert_eq!(script.patch(&url, &json!({"slots": 2})).await.status, 403);
}

#[tokio::test]
async fn phases_of_a_load_say_what_they_took_and_what_is_usual() {
    use warden_domain::{model::LoadPhase, units::Millis};
    let world = World::claimed();
    let id = world.add_model("tiny", None, None);
    let mut state = state_of(&id, StateWord::Loading);
    let phase = |name: &str, began, took: Option<u64>| LoadPhase {
        name: name.to_owned(),
        began,
        took: took.map(Millis),
        typical: took.map(Millis),
        part: None,
    };
    let now = warden_domain::clock::now();
    state.replicas[0].phases = vec![phase("start", Some(now), Some(1500)), phase("weights", Some(now), None), phase("warmup", None, None)];
    world.edit(|m| m.states.insert(id.clone(), state));
    let phases = Script::signed_in(&world).get(&format!("/api/models/{id}")).await.json["state"]["phases"].clone();
    assert_eq!((&phases[0]["elapsed_s"], &phases[0]["typical_s"], &phases[0]["done"]), (&json!(1.5), &json!(1.5), &json!(true)));
    assert!(phases[1]["elapsed_s"].is_number() && phases[1]["typical_s"].is_null() && phases[1]["done"] == false);
    assert!(phases[2]["elapsed_s"].is_null(), "what is not reached is unknown, not nought");
}
