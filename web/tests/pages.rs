//! Renders every page over ports in memory, in both languages and themes, as a browser would get it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../../tests/fakes/ports.rs"]
mod ports;
#[path = "pages/visitor.rs"]
mod visitor;

use ports::{CLAIM_CODE, World};
use visitor::Browser;
use warden_domain::{
    Problem, ProblemKind,
    access::Role,
    download::DownloadState,
    engine::PackState,
    gpu::GpuReading,
    ids::ModelId,
    issue::{Fix, IssueCode, Said},
    model::StateWord,
    storage::Role as DiskRole,
    units::{Bytes, Tokens},
    update::UpdatePhase,
    usage::UsageTotals,
};

/// A box with something in every state.
fn furnished() -> World {
    let world = World::claimed();
    for (name, word) in [
        ("tiny", StateWord::Running),
        ("coming", StateWord::Loading),
        ("broken", StateWord::Failed),
        ("later", StateWord::Waiting),
        ("idle", StateWord::Stopped),
    ] {
        world.add_model(name, Some("A <title> & more"), Some(word));
    }
    world.lay_file("found", 97_933_721);
    world.add_key(
        "app",
        UsageTotals { requests: 1284, requests_without_counts: 3, prompt: Tokens(2_912_400), cached: Tokens(17), completion: Tokens(402) },
        true,
        false,
    );
    world.add_key("old", UsageTotals::default(), false, true);
    world.add_issue(
        IssueCode::ModelFailed,
        "mdl_broken",
        "The model broken failed. The engine was killed.",
        Some(Fix::LoadModel(ModelId::from_stored("mdl_broken"))),
    );
    world.add_issue(IssueCode::DataDiskNearlyFull, "data", Said::DataDiskNearlyFull { free: Bytes(3 << 30), total: Bytes(64 << 30) }, None);
    world.plug("SYSTEM", DiskRole::System);
    world.plug("BLANK", DiskRole::Blank);
    world.plug("STICK", DiskRole::Foreign);
    world.lose_volume("wm-00000001", "S-GONE");
    world.updating(UpdatePhase::Downloading);
    world.fit_gpus(GpuReading::Live, true);
    for (name, state) in [
        ("fetched", DownloadState::Running),
        ("cut", DownloadState::Failed),
        ("patient", DownloadState::Waiting),
        ("rests", DownloadState::Paused),
        ("here", DownloadState::Done),
    ] {
        world.add_download(name, state);
    }
    world.edit(|m| m.hub.cards = 2);
    world
}

/// Every page behind the login.
const PAGES: &[&str] = &[
    "/ui/",
    "/ui/models",
    "/ui/models/new",
    "/ui/models/hub",
    "/ui/models/hub?repo=acme/small-model&card=0&card=1",
    "/ui/models/hub?repo=acme/none",
    "/ui/models/hub/choice?repo=acme/small-model&filename=small-Q8_0.gguf",
    "/ui/models/hub/choice?repo=acme/small-model&filename=odd-mamba.gguf",
    "/ui/models/hub/settings",
    "/ui/models/downloads/dow_fetched/cancel",
    "/ui/models/downloads/dow_here/cancel",
    "/ui/models/mdl_tiny",
    "/ui/models/mdl_coming",
    "/ui/models/mdl_broken",
    "/ui/models/mdl_later",
    "/ui/models/mdl_tiny/unload",
    "/ui/models/mdl_tiny/reload",
    "/ui/models/mdl_tiny/settings",
    "/ui/models/mdl_idle/remove",
    "/ui/keys",
    "/ui/keys/new",
    "/ui/keys/key_app/revoke",
    "/ui/keys/key_app/priority",
    "/ui/storage",
    "/ui/storage/disks/BLANK/adopt",
    "/ui/storage/disks/STICK/adopt",
    "/ui/storage/sources/STICK",
    "/ui/storage/volumes/dsk_wm-00000001/forget",
    "/ui/chat",
    "/ui/gpus",
    "/ui/network",
    "/ui/network/eth0",
    "/ui/system",
    "/ui/system/reboot",
    "/ui/system/power-off",
    "/ui/system/factory-reset",
    "/ui/updates",
    "/ui/updates/restart",
    "/ui/updates/go-back",
    "/ui/issues",
    "/ui/issues/iss_model_failed/dismiss",
    "/ui/alerts",
    "/ui/tls",
    "/ui/setup/model",
    "/ui/setup/model/mdl_coming",
    "/ui/setup/model/mdl_tiny",
    "/ui/setup/done",
    "/ui/kit",
];

#[tokio::test]
async fn every_page_is_there_in_both_languages_and_themes() {
    let world = furnished();
    for (lang, word) in [("en", "Models"), ("hi", "मॉडल")] {
        for theme in ["auto", "light", "dark"] {
            let browser = Browser::signed_in(&world).look(lang, theme);
            for path in PAGES {
                let page = browser.get(path).await;
                assert_eq!(page.status, 200, "{path}");
                assert!(page.text.contains(&format!("<html lang=\"{lang}\" data-theme=\"{theme}\">")), "{path}");
                if !path.starts_with("/ui/setup") {
                    assert!(page.text.contains(&format!("<span>{word}</span>")), "{path} in {lang}");
                }
            }
        }
    }
}

#[tokio::test]
async fn no_page_carries_a_script_or_style_of_its_own() {
    let world = furnished();
    let mut pages = Vec::new();
    for path in PAGES {
        pages.push((*path, Browser::signed_in(&world).get(path).await));
    }
    for path in ["/ui/login", "/ui/nothing-here"] {
        pages.push((path, Browser::anonymous(&world).get(path).await));
    }
    pages.push(("/ui/setup", Browser::anonymous(&World::fresh()).get("/ui/setup").await));
    for (path, page) in pages {
        let csp = page.header("content-security-policy");
        assert!(csp.starts_with("default-src 'self';") && !csp.contains("unsafe"), "{path}: {csp}");
        assert_eq!(page.header("x-content-type-options"), "nosniff", "{path}");
        assert!(!page.text.contains("<style") && !page.text.contains(" style=") && !page.text.contains("javascript:"), "{path}");
        for tag in page.text.split("<script").skip(1) {
            let (opening, rest) = tag.split_once('>').unwrap();
            assert!(opening.contains(" src=\"/ui/assets/") && rest.starts_with("</script>"), "{path}: <script{opening}>");
        }
        let handler = page.text.split(" on").skip(1).find(|rest| {
            rest.split(['=', ' ', '<']).next().is_some_and(|name| name.len() > 2 && name.bytes().all(|b| b.is_ascii_lowercase()))
                && rest.contains("=\"")
                && rest.find('=') < rest.find(' ')
        });
        assert_eq!(handler, None, "{path}");
        assert!(!page.text.contains("A <title>"), "{path}: text from a model file must be escaped");
    }
}

#[tokio::test]
async fn every_asset_a_page_names_exists_and_may_be_kept_for_ever() {
    let world = furnished();
    let browser = Browser::signed_in(&world);
    let page = browser.get("/ui/chat").await;
    let assets: Vec<&str> = page.text.split('"').filter(|text| text.starts_with("/ui/assets/")).collect();
    assert!(assets.len() >= 6);
    for url in assets {
        let asset = browser.get(url).await;
        assert_eq!(asset.status, 200, "{url}");
        assert!(asset.header("cache-control").contains("immutable"), "{url}");
    }
    assert_eq!(browser.get("/ui/assets/0123456789abcdef/console.css").await.status, 404);
}

#[tokio::test]
async fn whoever_is_not_signed_in_is_led_to_the_door() {
    let claimed = World::claimed();
    let page = Browser::anonymous(&claimed).get("/ui/keys").await;
    assert_eq!((page.status, page.header("location")), (303, "/ui/login?next=/ui/keys".to_owned()));
    let fragment = Browser::anonymous(&claimed).htmx().get("/ui/keys").await;
    assert_eq!((fragment.status, fragment.header("hx-redirect")), (401, "/ui/login?next=/ui/keys".to_owned()));
    let fresh = Browser::anonymous(&World::fresh()).get("/ui/").await;
    assert_eq!(fresh.header("location"), "/ui/setup");
    assert_eq!(Browser::anonymous(&claimed).get("/").await.header("location"), "/ui/");
}

#[tokio::test]
async fn the_wizard_leads_from_the_claim_code_to_a_key_shown_once() {
    let world = World::fresh();
    world.lay_file("found", 97_933_721);
    let anonymous = Browser::anonymous(&world);

    let wrong = anonymous.post("/ui/setup", "claim_code=WRONG&username=ada&password=a+long+enough+password").await;
    assert_eq!(wrong.status, 403);
    assert!(wrong.text.contains("not the one of this box") && !wrong.text.contains("a long enough password"));
    let short = anonymous.post("/ui/setup", &format!("claim_code={CLAIM_CODE}&username=ada&password=short")).await;
    assert_eq!(short.status, 422);
    assert!(short.text.contains("12 characters"));

    let claimed = anonymous.post("/ui/setup", &format!("claim_code={CLAIM_CODE}&username=ada&password=a+long+enough+password")).await;
    assert_eq!((claimed.status, claimed.header("location")), (303, "/ui/setup/model".to_owned()));
    let cookie = claimed.header("set-cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let again = anonymous.post("/ui/setup", &format!("claim_code={CLAIM_CODE}&username=eve&password=a+long+enough+password")).await;
    assert_eq!(again.status, 409);

    let browser = Browser::with_cookie(&world, &cookie).htmx();
    let begun = browser.post("/ui/setup/model", "candidate=%2Fdata%2Fmodels%2Ffound.gguf").await;
    let follow = begun.header("hx-redirect");
    assert!(follow.starts_with("/ui/setup/model/mdl_"), "{follow}");
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let loaded = browser.get(&follow).await;
    assert!(loaded.text.contains("data-model-state=\"running\""));

    let done = browser.post(&follow.replace("/model/", "/finish/"), "").await;
    assert!(done.text.contains("vw_Zk3nQ8rT1vXy6bD0fHj2LmPs5uWa9cEgIiKoMqOtRwU"));
    assert!(!browser.get("/ui/setup/done").await.text.contains("vw_Zk3n"));
}

#[tokio::test]
async fn a_wrong_password_is_a_sentence_and_a_right_one_goes_where_it_was_meant_to() {
    let world = World::claimed();
    let browser = Browser::anonymous(&world);
    let wrong = browser.post("/ui/login", "username=ada&password=nope&next=/ui/keys").await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.text.contains("name or password is wrong") && wrong.text.contains("value=\"ada\"") && !wrong.text.contains("nope"));
    let right = browser.post("/ui/login", "username=ada&password=a+long+enough+password&next=//evil.example").await;
    assert_eq!((right.status, right.header("location")), (303, "/ui/".to_owned()));
    let signed = Browser::with_cookie(&world, &right.header("set-cookie")).htmx();
    let left = signed.post("/ui/logout", "").await;
    assert_eq!(left.header("hx-redirect"), "/ui/login");
    assert!(left.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(signed.get("/ui/").await.status, 401);
}

#[tokio::test]
async fn a_changing_call_without_the_proof_of_the_session_is_refused() {
    let world = furnished();
    let browser = Browser::signed_in(&world).htmx();
    assert_eq!(browser.post_without_proof("/ui/models/mdl_tiny/unload").await.status, 403);
    assert!(browser.get("/ui/models").await.text.contains("Unload"));
    assert_eq!(browser.post("/ui/models/mdl_tiny/unload", "").await.status, 204);
}

#[tokio::test]
async fn an_admin_reads_what_an_unload_will_stop_before_it_happens() {
    let world = furnished();
    world.edit(|m| m.flights.insert(warden_domain::ids::ModelId::from_stored("mdl_tiny"), 3));
    let ask = Browser::signed_in(&world).htmx().get("/ui/models/mdl_tiny/unload").await;
    assert!(ask.text.contains("3 running requests") && ask.text.contains("Unload tiny?"));
    assert!(!ask.text.contains("<html"), "htmx gets the question alone");
}

#[tokio::test]
async fn settings_of_a_model_are_changed_on_a_page_and_wait_for_a_reload() {
    let world = furnished();
    let browser = Browser::signed_in(&world).htmx();
    let form = "replicas=2&slots=8&context=&gpus=&extra_args=--flash-attn+on&runaway_guard=enforce";
    let saved = browser.post("/ui/models/mdl_tiny/settings", form).await;
    assert_eq!(saved.header("hx-redirect"), "/ui/models/mdl_tiny");
    let page = browser.get("/ui/models/mdl_tiny/settings").await.text;
    assert!(page.contains("value=\"--flash-attn on\"") && page.contains("value=\"8\"") && page.contains("value=\"enforce\" selected"));
    let refused = browser.post("/ui/models/mdl_tiny/settings", "replicas=2&gpus=GPU-a").await;
    assert_eq!(refused.status, 422);
    assert!(refused.text.contains("shared out evenly"), "{}", refused.text);

    let id = warden_domain::ids::ModelId::from_stored("mdl_tiny");
    world.edit(|m| {
        let config = m.models.iter().find(|model| model.id == id).unwrap().config.clone();
        let older = warden_domain::model::ModelConfig { slots: 4, ..config };
        m.states.get_mut(&id).unwrap().loaded = Some(older);
    });
    assert!(browser.get("/ui/models/mdl_tiny").await.text.contains("Newer settings are waiting"));
    assert!(browser.get("/ui/models/mdl_tiny/reload").await.text.contains("Reload tiny?"));
    assert_eq!(browser.post("/ui/models/mdl_tiny/reload", "").await.status, 204);
    assert!(world.memory.lock().unwrap().deeds.contains(&"reload tiny".to_owned()));
}

#[tokio::test]
async fn a_refused_action_shows_its_sentence_where_the_admin_looks() {
    let world = furnished();
    world.edit(|m| m.fail_next = Some(Problem::new(ProblemKind::SystemService, "The system bus does not answer.").hint("Start the box again.")));
    let refused = Browser::signed_in(&world).htmx().post("/ui/models/mdl_idle/load", "").await;
    assert_eq!((refused.status, refused.header("hx-retarget")), (503, "#flash".to_owned()));
    assert!(refused.text.contains("The system bus does not answer.") && refused.text.contains("role=\"alert\""));
    let duplicate = Browser::signed_in(&world).htmx().post("/ui/keys", "name=app").await;
    assert_eq!(duplicate.status, 409);
    assert!(duplicate.text.contains("aria-invalid=\"true\"") && duplicate.text.contains("value=\"app\""));
}

#[tokio::test]
async fn a_key_gets_its_priority_when_it_is_made_or_later() {
    let world = furnished();
    let browser = Browser::signed_in(&world).htmx();
    let of = |name: &str| world.memory.lock().unwrap().keys.iter().find(|(key, _)| key.name == name).unwrap().0.priority.number();
    assert_eq!(browser.post("/ui/keys", "name=urgent&priority=9").await.status, 201);
    assert_eq!((of("urgent"), of("app")), (9, 5));
    assert!(browser.get("/ui/keys").await.text.contains("priority 9"));
    assert_eq!(browser.post("/ui/keys/key_app/priority", "priority=0").await.status, 204);
    assert_eq!(of("app"), 0);
    assert_eq!(browser.post("/ui/keys/key_app/priority", "priority=12").await.status, 422);
    assert_eq!(of("app"), 0);
}

#[tokio::test]
async fn a_viewer_does_not_see_valid_keys_as_revoked() {
    let world = furnished();
    let admin = Browser::signed_in(&world).get("/ui/keys").await.text.matches("class=\"gone\"").count();
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Viewer);
    let viewer = Browser::signed_in(&world).get("/ui/keys").await;
    assert_eq!(viewer.text.matches("class=\"gone\"").count(), admin);
    assert!(!viewer.text.contains("/revoke\"") && !viewer.text.contains("/priority\""));
}

#[tokio::test]
async fn a_viewer_sees_everything_and_changes_nothing() {
    let world = furnished();
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Viewer);
    let viewer = Browser::signed_in(&world).htmx();
    let list = viewer.get("/ui/models").await;
    assert!(!list.text.contains("/load\"") && !list.text.contains("/unload\""));
    for (path, body) in [
        ("/ui/models/mdl_idle/load", ""),
        ("/ui/models/mdl_tiny/unload", ""),
        ("/ui/models/mdl_tiny/reload", ""),
        ("/ui/models/mdl_tiny/settings", "replicas=2"),
        ("/ui/models/mdl_idle/remove", ""),
        ("/ui/keys", "name=x"),
        ("/ui/models", "path=x"),
        ("/ui/keys/key_app/revoke", ""),
        ("/ui/keys/key_app/priority", "priority=9"),
        ("/ui/issues/check", ""),
        ("/ui/issues/iss_model_failed/fix", ""),
        ("/ui/issues/iss_model_failed/dismiss", ""),
        ("/ui/alerts", "enabled=on&url=http%3A%2F%2Fx%2F"),
        ("/ui/alerts/test", ""),
        ("/ui/tls", "names=x.example"),
    ] {
        assert_eq!(viewer.post(path, body).await.status, 403, "{path}");
    }
}

#[tokio::test]
async fn an_engine_that_is_being_built_says_how_far_it_is() {
    let world = furnished();
    world.edit(|m| m.packs[0].state = PackState::Building { step: Some(123), of: Some(208), message: "compiling src/llama.cpp".to_owned() });
    for path in ["/ui/", "/ui/models", "/ui/models/mdl_later", "/ui/setup/model/mdl_later"] {
        let page = Browser::signed_in(&world).get(path).await;
        assert!(
            page.text.contains("llama.cpp is being built")
                && page.text.contains("123 of 208")
                && page.text.contains("<progress value=\"123\" max=\"208\""),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_page_follows_a_change_without_a_reload() {
    let world = furnished();
    let mut line = Browser::signed_in(&world).htmx().open("/ui/live/models").await;
    assert!(line.next_event().await.contains("data-model-state=\"loading\""));
    world.edit(|m| {
        let id = warden_domain::ids::ModelId::from_stored("mdl_coming");
        m.states.insert(id.clone(), ports::state_of(&id, StateWord::Running));
    });
    let event = line.next_event().await;
    assert!(event.contains("hx-target=\"#live\"") && !event.contains("data-model-state=\"loading\""), "{event}");
}

#[tokio::test]
async fn unknown_pages_and_models_are_told_with_a_way_back() {
    let world = furnished();
    let browser = Browser::signed_in(&world);
    for path in ["/ui/nope", "/ui/models/mdl_gone", "/nope"] {
        let page = browser.get(path).await;
        assert_eq!(page.status, 404, "{path}");
        assert!(page.text.contains("href=\"/ui/\""), "{path}");
    }
    assert_eq!(browser.get("/ui/logout").await.status, 405);
}

#[tokio::test]
async fn the_specimen_page_stays_out_of_release_builds() {
    assert_eq!(Browser::signed_in(&furnished()).release().get("/ui/kit").await.status, 404);
}

#[tokio::test]
async fn a_restart_asks_first_and_says_what_ends() {
    let world = furnished();
    let browser = Browser::signed_in(&world).htmx();
    let question = browser.get("/ui/system/reboot").await;
    assert!(question.text.contains("Restart the machine?") && question.text.contains("request"));
    assert!(world.memory.lock().unwrap().deeds.is_empty());
    let going = browser.post("/ui/system/reboot", "").await;
    assert_eq!(going.status, 202);
    assert!(going.text.contains("data-going=\"reboot\""));
    let deeds = world.memory.lock().unwrap().deeds.clone();
    assert!(deeds[0].contains("system.reboot") && deeds[1] == "Reboot", "{deeds:?}");
}

#[tokio::test]
async fn a_factory_reset_needs_its_word_and_keeps_models_unless_told() {
    let world = furnished();
    let browser = Browser::signed_in(&world).htmx();
    let wrong = browser.post("/ui/system/factory-reset", "models=remove&confirm=yes").await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.text.contains("Nothing was changed") && wrong.text.contains("value=\"remove\" checked"));
    assert!(world.memory.lock().unwrap().deeds.is_empty());
    assert_eq!(browser.post("/ui/system/factory-reset", "confirm=Reset").await.status, 202);
    assert_eq!(world.memory.lock().unwrap().deeds[0], "factory keep_models=true");
}

#[tokio::test]
async fn a_viewer_is_told_who_may_restart_and_cannot() {
    let world = furnished();
    if let Some(account) = world.memory.lock().unwrap().account.as_mut() {
        account.2 = Role::Viewer;
    }
    let browser = Browser::signed_in(&world).htmx();
    assert!(browser.get("/ui/system").await.text.contains("Ask an admin"));
    for path in ["/ui/system/reboot", "/ui/system/power-off", "/ui/system/factory-reset"] {
        assert_eq!(browser.post(path, "confirm=reset").await.status, 403, "{path}");
    }
    assert!(world.memory.lock().unwrap().deeds.is_empty());
}

#[tokio::test]
async fn the_way_to_a_new_password_is_shown_only_while_a_reset_is_open() {
    let world = furnished();
    let browser = Browser::anonymous(&world);
    assert!(!browser.get("/ui/login").await.text.contains("/ui/login/reset"));
    assert!(browser.get("/ui/login/reset").await.text.contains("No password reset is open"));
    world.memory.lock().unwrap().reset_code = Some(CLAIM_CODE.to_owned());
    assert!(browser.get("/ui/login").await.text.contains("/ui/login/reset"));
    let wrong = browser.post("/ui/login/reset", "reset_code=NO&username=ada&password=a+long+enough+password").await;
    assert_eq!(wrong.status, 403);
    let done = browser.post("/ui/login/reset", &format!("reset_code={CLAIM_CODE}&username=ada&password=a+long+enough+password")).await;
    assert_eq!(done.status, 303);
    let inside = Browser::with_cookie(&world, &done.header("set-cookie"));
    assert_eq!(inside.get("/ui/").await.status, 200);
}

#[tokio::test]
async fn an_issue_is_counted_in_the_strip_shown_at_home_and_fixed_with_one_click() {
    let world = furnished();
    let browser = Browser::signed_in(&world).htmx();
    for path in ["/ui/", "/ui/issues", "/ui/models"] {
        let page = browser.get(path).await;
        assert!(page.text.contains("<a class=\"health\" href=\"/ui/issues\">") && page.text.contains("<span class=\"number\">3</span>"), "{path}");
    }
    let home = browser.get("/ui/").await.text;
    assert!(home.contains("3.0 GiB of 64.0 GiB"));
    assert!(home.contains("A model disk is missing") && home.contains("S-GONE") && home.contains("/ui/issues#iss_model_disk_missing"));
    let page = browser.get("/ui/issues").await;
    assert!(page.text.contains("A model failed: broken") && page.text.contains("data-issue=\"model_failed\""));
    assert_eq!(browser.post("/ui/issues/iss_model_failed/fix", "").await.status, 204);
    let model = browser.get("/ui/models/mdl_broken").await;
    assert!(!model.text.contains("data-model-state=\"failed\""), "the fix loads the model");
}

#[tokio::test]
async fn a_dismissed_issue_is_not_counted_and_says_why() {
    let world = furnished();
    let browser = Browser::signed_in(&world).htmx();
    assert_eq!(browser.post("/ui/issues/iss_data_disk_nearly_full/dismiss", "reason=disk+ordered").await.status, 204);
    let page = browser.get("/ui/issues").await;
    assert!(page.text.contains("<span class=\"number\">2</span>") && page.text.contains("disk ordered"));
    assert_eq!(browser.post("/ui/issues/iss_data_disk_nearly_full/recall", "").await.status, 204);
    assert!(browser.get("/ui/issues").await.text.contains("<span class=\"number\">3</span>"));
}

#[tokio::test]
async fn the_secret_of_alerts_is_shown_once_and_is_on_no_page_afterwards() {
    let world = furnished();
    let browser = Browser::signed_in(&world).htmx();
    let refused = browser.post("/ui/alerts", "enabled=on&url=file%3A%2F%2F%2Fetc%2Fpasswd&which=all").await;
    assert_eq!((refused.status, refused.header("hx-retarget")), (422, "#flash".to_owned()));
    let made = browser.post("/ui/alerts", "enabled=on&url=http%3A%2F%2Fops.example%2F&which=all").await;
    assert!(made.status == 201 && made.text.contains(ports::ALERT_SECRET));
    let page = browser.get("/ui/alerts").await;
    assert!(page.text.contains("http://ops.example/") && !page.text.contains(ports::ALERT_SECRET));
    assert_eq!(browser.post("/ui/alerts", "enabled=on&url=http%3A%2F%2Fops.example%2F&which=all").await.header("hx-redirect"), "/ui/alerts");
    assert_eq!(browser.post("/ui/alerts/test", "").await.status, 204);
    assert!(browser.get("/ui/alerts").await.text.contains("Test"));
}

#[tokio::test]
async fn a_network_change_is_planned_begun_and_confirmed_from_the_new_address() {
    let world = World::claimed();
    let browser = Browser::signed_in(&world).htmx();
    let form = "ipv4=static&address4=192.168.1.50&prefix4=24&gateway4=192.168.1.1&ipv6=off&dns=192.168.1.1";
    let plan = browser.post("/ui/network/eth0/plan", form).await;
    assert_eq!(plan.status, 200);
    assert!(plan.text.contains("http://192.168.1.50:8080/ui/") && plan.text.contains("undone by itself"), "{}", plan.text);
    assert!(world.place.document.lock().unwrap().pending.is_none(), "a plan changes nothing");
    let begun = browser.post("/ui/network/eth0", form).await;
    assert_eq!(begun.status, 202);
    assert!(begun.text.contains("http://192.168.1.50:8080/ui/network/confirm?token="), "{}", begun.text);
    assert!(browser.get("/ui/network").await.text.contains("data-trial"));

    let there = Browser::anonymous(&world);
    let page = there.get(&format!("/ui/network/confirm?token={}", ports::network::TOKEN)).await;
    assert_eq!(page.status, 200);
    assert!(world.place.document.lock().unwrap().pending.is_some(), "a mere look confirms nothing");
    assert_eq!(there.post("/ui/network/confirm", "token=guess").await.status, 404);
    let kept = there.post("/ui/network/confirm", &format!("token={}", ports::network::TOKEN)).await;
    assert_eq!(kept.status, 200);
    assert!(world.place.document.lock().unwrap().last.as_ref().unwrap().kept);
}

#[tokio::test]
async fn a_machine_without_the_network_service_says_so_and_offers_nothing() {
    let world = World::claimed();
    world.place.document.lock().unwrap().unavailable = Some("NetworkManager does not run on this machine.".to_owned());
    let page = Browser::signed_in(&world).get("/ui/network").await.text;
    assert!(page.contains("NetworkManager does not run") && !page.contains("/ui/network/eth0"), "{page}");
}

#[tokio::test]
async fn a_mistyped_address_is_told_before_anything_is_planned() {
    let browser = Browser::signed_in(&World::claimed()).htmx();
    let refused = browser.post("/ui/network/eth0/plan", "ipv4=static&address4=10.0.0&prefix4=24").await;
    assert_eq!(refused.status, 422);
    assert!(refused.text.contains("10.0.0"), "{}", refused.text);
}

#[tokio::test]
async fn an_admin_compares_the_fingerprint_and_names_the_box() {
    let world = furnished();
    let admin = Browser::signed_in(&world).htmx();
    let page = admin.get("/ui/tls").await;
    for shown in [["A1"; 32].join(":"), ["B2"; 32].join(":"), "test-box.local".to_owned(), "192.168.1.20".to_owned()] {
        assert!(page.text.contains(&shown), "{shown}");
    }
    let saved = admin.post("/ui/tls", "names=llm.example.org%2C+a.example&plain_http=on").await;
    assert!(saved.status == 200 && saved.text.contains("Saved") && !saved.text.contains("<html"), "{} {}", saved.status, saved.text);
    let kept = world.edit(|m| m.front.clone());
    assert_eq!((kept.names, kept.plain_http), (vec!["llm.example.org".to_owned(), "a.example".to_owned()], true));
    assert!(admin.get("/ui/tls").await.text.contains("Everybody on the way can read"));
    world.edit(|m| m.fail_next = Some(Problem::new(ProblemKind::Invalid, "\"x y\" is not a DNS name.")));
    let refused = admin.post("/ui/tls", "names=x+y").await;
    assert!(refused.status == 422 && refused.text.contains("aria-invalid=\"true\"") && refused.text.contains("value=\"x y\""));
}

#[tokio::test]
async fn the_authority_can_be_taken_along_by_whoever_is_signed_in() {
    let world = furnished();
    let file = Browser::signed_in(&world).get("/ui/tls/ca.crt").await;
    assert_eq!(file.header("content-type"), "application/x-x509-ca-cert");
    assert!(file.text.starts_with("-----BEGIN CERTIFICATE-----"));
    assert_eq!(Browser::anonymous(&world).get("/ui/tls/ca.crt").await.status, 303);
}

#[tokio::test]
async fn a_missing_disk_is_a_sentence_on_home_and_storage() {
    let browser = Browser::signed_in(&furnished());
    for page in ["/ui/", "/ui/storage"] {
        let text = browser.get(page).await.text;
        assert!(text.contains("S-GONE"), "{page}");
    }
}

#[tokio::test]
async fn the_system_disk_offers_no_button_and_others_say_what_they_would_do() {
    let browser = Browser::signed_in(&furnished());
    let text = browser.get("/ui/storage").await.text;
    assert!(!text.contains("/ui/storage/disks/SYSTEM/adopt"));
    assert!(text.contains("/ui/storage/disks/BLANK/adopt") && text.contains("/ui/storage/sources/STICK"));
    let blank = browser.get("/ui/storage/disks/BLANK/adopt").await.text;
    assert!(blank.contains("will erase") && !blank.contains("name=\"serial\""));
    assert!(browser.get("/ui/storage/disks/STICK/adopt").await.text.contains("name=\"serial\""));
}

#[tokio::test]
async fn the_page_of_updates_shows_what_may_be_done_in_each_phase_and_to_whom() {
    let cases = [
        (UpdatePhase::Idle, vec!["Install now", "Go back to the other system"], vec!["Restart now"]),
        (UpdatePhase::Downloading, vec!["being fetched", "12.0 MiB/s", "50 s left", "/ui/updates/cancel"], vec!["Restart now"]),
        (UpdatePhase::Verified, vec!["/ui/updates/continue", "/ui/updates/cancel"], vec!["Restart now"]),
        (UpdatePhase::Staged, vec!["Restart now", "/ui/updates/cancel"], vec!["/ui/updates/go-back"]),
        (UpdatePhase::Trial, vec!["on trial"], vec!["Restart now", "/ui/updates/go-back", "/ui/updates/cancel"]),
        (UpdatePhase::RolledBack, vec!["The console did not answer.", "Install now"], vec!["Restart now"]),
    ];
    for (phase, shown, hidden) in cases {
        let world = World::claimed();
        world.updating(phase);
        let page = Browser::signed_in(&world).get("/ui/updates").await.text;
        assert!(shown.iter().all(|words| page.contains(words)), "{phase:?}: {shown:?}");
        assert!(!hidden.iter().any(|words| page.contains(words)), "{phase:?}: {hidden:?}");
        assert!(page.contains("Faster &#60;loads&#62;.") || page.contains("Faster &lt;loads&gt;."), "notes are text");
    }
    let world = World::claimed();
    world.updating(UpdatePhase::Staged);
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Viewer);
    let page = Browser::signed_in(&world).get("/ui/updates").await.text;
    assert!(!page.contains("Restart now") && !page.contains("id=\"upload\"") && page.contains("waits for a restart"));
}

#[tokio::test]
async fn a_box_without_a_channel_says_the_next_step_and_home_tells_of_what_waits() {
    let world = World::claimed();
    let browser = Browser::signed_in(&world);
    assert!(browser.get("/ui/updates").await.text.contains("No channel is set"));
    world.edit(|m| m.updates.cannot_install = Some("This is not the appliance.".to_owned()));
    assert!(browser.get("/ui/updates").await.text.contains("Nothing can be installed on this machine"));
    assert!(!browser.get("/ui/").await.text.contains("/ui/updates\">Updates</a>"));
    world.updating(UpdatePhase::Staged);
    assert!(browser.get("/ui/").await.text.contains("Version 1.4.0 waits for a restart"));
}

#[tokio::test]
async fn a_narrow_card_is_warned_of_in_words_and_simulated_cards_are_called_so() {
    let world = World::claimed();
    world.fit_gpus(GpuReading::Live, true);
    let page = Browser::signed_in(&world).get("/ui/gpus").await.text;
    for words in [
        "x4 of x16",
        "Fewer lanes than it could use",
        "GPUs are simulated",
        "82 of 83 °C",
        "close to its own limit",
        "342 of 350 W",
        "python3 (process 2718)",
        "88 %",
    ] {
        assert!(page.contains(words), "{words} is missing");
    }
    assert_eq!(page.matches("data-narrow").count(), 1);
    assert!(page.contains("A card is gone: Card &#60;2&#62;"), "a vanished card is told");
    world.fit_gpus(GpuReading::Live, false);
    assert!(!Browser::signed_in(&world).get("/ui/gpus").await.text.contains("simulated"));
}

#[tokio::test]
async fn a_silent_driver_leaves_the_last_known_cards_and_says_since_when() {
    let world = World::claimed();
    world.fit_gpus(GpuReading::Stale { since_s: 75.0, cause: "The driver hangs.".to_owned() }, false);
    let page = Browser::signed_in(&world).get("/ui/gpus").await.text;
    assert!(page.contains("have not answered for 1 m 15 s") && page.contains("The driver hangs.") && page.contains("restart the machine"));
    assert!(page.contains("card-GPU-1"), "the last known cards are shown");
}

#[tokio::test]
async fn a_page_without_cards_says_why_and_what_to_do() {
    let world = World::claimed();
    let rows = [
        (GpuReading::NoLibrary { detail: "No libnvidia-ml.so.1.".to_owned() }, ["no NVIDIA driver", "No libnvidia-ml.so.1.", "/ui/models"]),
        (GpuReading::Live, ["sees no card", "power cables", "/ui/models"]),
        (GpuReading::Failed { cause: "Versions differ.".to_owned() }, ["cannot be read", "Versions differ.", "Restart the machine"]),
        (GpuReading::Starting, ["being looked at", "first reading", "/ui/models"]),
    ];
    for (reading, words) in rows {
        world.gpu_reading(reading.clone());
        let page = Browser::signed_in(&world).get("/ui/gpus").await.text;
        for words in words {
            assert!(page.contains(words), "{reading:?}: {words} is missing");
        }
    }
}

#[tokio::test]
async fn each_file_of_a_repository_has_its_verdict_and_only_whole_ones_can_be_chosen() {
    let world = furnished();
    let browser = Browser::signed_in(&world);
    let page = browser.get("/ui/models/hub?repo=acme/small-model&card=0").await.text;
    for words in ["small-Q4_K_M.gguf", "fits", "tight", "does not fit", "cannot be told", "general.architecture = mamba", "1 of its 2 parts"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.contains("/ui/models/hub/choice?repo=acme/small-model&#38;filename=small-Q4_K_M.gguf&#38;card=0"), "{page}");
    assert!(!page.contains("filename=cut-00001-of-00002.gguf"));
    let chosen = browser.get("/ui/models/hub/choice?repo=acme/small-model&filename=small-Q8_0.gguf").await.text;
    assert!(chosen.contains("2\u{202f}048") && chosen.contains("Token memory") && chosen.contains("name=\"load\""), "{chosen}");
}

#[tokio::test]
async fn a_repository_that_is_not_there_is_a_sentence_above_the_form_that_asked() {
    let page = Browser::signed_in(&furnished()).get("/ui/models/hub?repo=acme/none").await;
    assert!(page.status == 200 && page.text.contains("There is no repository") && page.text.contains("value=\"acme/none\""), "{}", page.text);
}

#[tokio::test]
async fn a_download_shows_how_far_it_is_and_offers_what_makes_sense_to_whom_may() {
    let world = furnished();
    let page = Browser::signed_in(&world).get("/ui/models").await.text;
    for words in
        ["100.0 MiB of 400.0 MiB · 5.0 MiB/s · 1 m 1 s left", "The hub &#60;x&#62; cannot be reached", "/ui/models/downloads/dow_rests/resume"]
    {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.contains("/ui/models/downloads/dow_fetched/pause") && !page.contains("/ui/models/downloads/dow_cut/pause"));
    world.edit(|m| m.account.as_mut().unwrap().2 = Role::Viewer);
    let seen = Browser::signed_in(&world).get("/ui/models").await.text;
    assert!(!seen.contains("/ui/models/downloads/"), "a viewer is offered no button");
    assert_ne!(Browser::signed_in(&world).post("/ui/models/downloads/dow_fetched/pause", "").await.status, 204);
}

#[tokio::test]
async fn a_token_that_is_kept_is_on_no_page() {
    let world = furnished();
    let browser = Browser::signed_in(&world);
    assert_eq!(Browser::signed_in(&world).htmx().post("/ui/models/hub/settings", "endpoint=&token=hf_sentinel&limit=20").await.status, 200);
    let page = browser.get("/ui/models/hub/settings").await.text;
    assert!(!page.contains("hf_sentinel") && page.contains("One is kept"), "{page}");
}
