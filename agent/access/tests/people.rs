//! Claim, login, sessions and keys over a real store, as an owner meets them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::{sync::Arc, time::Duration};

use warden_access::Access;
use warden_domain::{
    ProblemKind, Secret,
    access::{Accounts, ClientAddr, Role},
    change::Changes,
    ids::{AccountId, KeyId},
    key::{KeyDirectory, KeyRefusal, Keys, Priority},
};
use warden_store::Store;

const PASSWORD: &str = "a long enough password";

async fn room(dir: &tempfile::TempDir) -> Arc<Access> {
    Access::open(Store::open(dir.path()).unwrap(), Changes::new()).await.unwrap()
}

fn secret(text: &str) -> Secret<String> {
    Secret::new(text.to_owned())
}

fn from(last: u8) -> ClientAddr {
    ClientAddr([192, 168, 7, last].into())
}

async fn code(access: &Access) -> String {
    access.claim_code().await.unwrap().unwrap().expose().clone()
}

#[tokio::test]
async fn an_unattended_installation_s_admin_signs_in_and_closes_setup() {
    let dir = tempfile::tempdir().unwrap();
    // A hash made elsewhere: here by another box.
    let other_dir = tempfile::tempdir().unwrap();
    let other = room(&other_dir).await;
    other.claim(from(1), &code(&other).await, "ops", &secret(PASSWORD)).await.unwrap();
    let store = Store::open(dir.path()).unwrap();
    drop(other);
    let hash = Store::open(other_dir.path()).unwrap().read(|db| warden_store::accounts::by_username(db, "ops")).await.unwrap().unwrap().password_hash;

    let access = Access::open(store, Changes::new()).await.unwrap();
    assert_eq!(access.seed_admin("ops", "correct horse").await.unwrap_err().kind, ProblemKind::Invalid);
    assert!(!access.setup_state().await.unwrap().done);
    assert!(access.seed_admin("ops", &hash).await.unwrap());
    assert!(access.setup_state().await.unwrap().done && access.claim_code().await.unwrap().is_none());
    assert_eq!(access.login(from(1), "ops", &secret(PASSWORD)).await.unwrap().principal.role, Role::Admin);
    assert!(!access.seed_admin("eve", &hash).await.unwrap(), "a second seed makes nobody");
    assert!(access.login(from(1), "eve", &secret(PASSWORD)).await.is_err());
}

#[tokio::test]
async fn the_code_on_the_screen_makes_one_admin_and_then_never_works_again() {
    let dir = tempfile::tempdir().unwrap();
    let access = room(&dir).await;
    assert!(!access.setup_state().await.unwrap().done);
    let code = code(&access).await;
    let session = access.claim(from(1), &code.to_lowercase().replace('-', ""), "Ada", &secret(PASSWORD)).await.unwrap();
    assert_eq!(session.principal.role, Role::Admin);
    assert!(access.setup_state().await.unwrap().done);
    assert!(access.claim_code().await.unwrap().is_none());
    let who = access.session(session.cookie.expose()).await.unwrap().unwrap();
    assert_eq!(who.username, "Ada");
    assert!(who.csrf.matches(session.principal.csrf.expose()));
    let again = access.claim(from(1), &code, "eve", &secret(PASSWORD)).await.unwrap_err();
    assert_eq!(again.kind, ProblemKind::Conflict);

    let reopened = room(&dir).await;
    assert!(reopened.setup_state().await.unwrap().done);
    assert_eq!(reopened.claim(from(1), &code, "eve", &secret(PASSWORD)).await.unwrap_err().kind, ProblemKind::Conflict);
}

#[tokio::test]
async fn a_restart_shows_the_same_code() {
    let dir = tempfile::tempdir().unwrap();
    let before = code(room(&dir).await.as_ref()).await;
    assert_eq!(before, code(room(&dir).await.as_ref()).await);
}

#[tokio::test]
async fn two_claims_at_the_same_moment_make_one_admin() {
    let dir = tempfile::tempdir().unwrap();
    let access = room(&dir).await;
    let code = code(&access).await;
    let (password_a, password_b) = (secret(PASSWORD), secret(PASSWORD));
    let (a, b) = tokio::join!(access.claim(from(1), &code, "ada", &password_a), access.claim(from(2), &code, "bob", &password_b));
    assert_eq!(u8::from(a.is_ok()) + u8::from(b.is_ok()), 1);
    let lost = a.err().or(b.err()).unwrap();
    assert_eq!(lost.kind, ProblemKind::Conflict);
}

#[tokio::test]
async fn ten_wrong_codes_change_the_code_and_a_bad_password_is_no_try() {
    let dir = tempfile::tempdir().unwrap();
    let access = room(&dir).await;
    let old = code(&access).await;
    let mut tries = tokio::task::JoinSet::new();
    for client in 1..=9 {
        assert_eq!(access.claim(from(1), &old, "ada", &secret("short")).await.unwrap_err().kind, ProblemKind::Invalid);
        let access = Arc::clone(&access);
        tries.spawn(async move { access.claim(from(client), "AAAA-AAAA", "ada", &secret(PASSWORD)).await.unwrap_err() });
    }
    let wrong = tries.join_all().await;
    assert!(wrong.iter().all(|p| p.kind == ProblemKind::Forbidden));
    assert!(wrong.iter().any(|p| p.hint.as_ref().unwrap().ends_with("changes: 1.")));
    assert_eq!(code(&access).await, old);
    access.claim(from(1), "AAAA-AAAA", "ada", &secret(PASSWORD)).await.unwrap_err();
    let new = code(&access).await;
    assert_ne!(new, old);
    assert_eq!(access.claim(from(1), &old, "ada", &secret(PASSWORD)).await.unwrap_err().kind, ProblemKind::Forbidden);
    assert_eq!(code(room(&dir).await.as_ref()).await, new, "a restart shows the new code");
    access.claim(from(1), &new, "ada", &secret(PASSWORD)).await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_waits_and_a_right_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let access = room(&dir).await;
    let code = code(&access).await;
    access.claim(from(1), &code, "ada", &secret(PASSWORD)).await.unwrap();
    for (name, password) in [("ada", "wrong wrong wrong"), ("nobody", PASSWORD)] {
        let started = std::time::Instant::now();
        let refused = access.login(from(1), name, &secret(password)).await.unwrap_err();
        assert_eq!(refused.kind, ProblemKind::Unauthorized);
        assert_eq!(refused.message, "User name or password is wrong.");
        assert!(started.elapsed() >= Duration::from_millis(500));
    }
    access.login(from(1), "ADA", &secret(PASSWORD)).await.expect("a right password always works");
}

#[tokio::test]
async fn logging_out_ends_the_session_for_whoever_kept_the_cookie() {
    let dir = tempfile::tempdir().unwrap();
    let access = room(&dir).await;
    let code = code(&access).await;
    let session = access.claim(from(1), &code, "ada", &secret(PASSWORD)).await.unwrap();
    assert!(access.session("made up").await.unwrap().is_none());
    access.logout(session.cookie.expose()).await.unwrap();
    assert!(access.session(session.cookie.expose()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_key_works_from_the_next_request_and_stops_with_the_next_one_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let access = room(&dir).await;
    let code = code(&access).await;
    let admin = access.claim(from(1), &code, "ada", &secret(PASSWORD)).await.unwrap().principal.account;
    let made = access.create(&admin, "laptop", Priority::USUAL).await.unwrap();
    let text = made.secret.expose().clone();
    assert!(text.starts_with(&made.key.prefix) && made.key.prefix.len() == 8);
    assert_eq!(access.identify(&text).unwrap().key, Some(made.key.id.clone()));
    assert_eq!((made.key.priority, access.identify(&text).unwrap().priority), (Priority::USUAL, Priority::USUAL));
    let high = Priority::new(9).unwrap();
    assert_eq!(access.set_priority(&admin, &made.key.id, high).await.unwrap().priority, high);
    assert_eq!(access.identify(&text).unwrap().priority, high, "it counts for the next request");
    assert_eq!(access.set_priority(&admin, &KeyId::random(), high).await.unwrap_err().kind, ProblemKind::NotFound);
    assert_eq!(access.identify("sk-123").unwrap_err(), KeyRefusal::Malformed);
    assert_eq!(access.identify(&format!("vw_{}", "A".repeat(43))).unwrap_err(), KeyRefusal::Unknown);
    assert_eq!(access.create(&admin, "laptop", Priority::USUAL).await.unwrap_err().kind, ProblemKind::Conflict);

    assert!(access.revoke(&made.key.id).await.unwrap().revoked_at.is_some());
    assert_eq!(access.identify(&text).unwrap_err(), KeyRefusal::Revoked);
    access.revoke(&made.key.id).await.expect("revoking twice is fine");
    assert_eq!(access.revoke(&KeyId::random()).await.unwrap_err().kind, ProblemKind::NotFound);
    access.create(&admin, "laptop", Priority::USUAL).await.expect("the name of a revoked key is free again");

    let reopened = room(&dir).await;
    assert_eq!(reopened.identify(&text).unwrap_err(), KeyRefusal::Revoked);
    let listed = reopened.list().await.unwrap();
    assert_eq!(listed.iter().map(|k| k.priority.number()).collect::<Vec<_>>(), [5, 9]);
    assert_eq!(listed.iter().map(|k| k.revoked_at.is_some()).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn no_secret_can_be_found_in_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let access = room(&dir).await;
    let code = code(&access).await;
    let session = access.claim(from(1), &code, "ada", &secret(PASSWORD)).await.unwrap();
    let key = access.create(&session.principal.account, "laptop", Priority::USUAL).await.unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for secret in [PASSWORD, session.cookie.expose(), key.secret.expose()] {
            assert!(!bytes.windows(secret.len()).any(|w| w == secret.as_bytes()));
        }
    }
}

#[tokio::test]
async fn a_key_needs_an_account_that_exists() {
    let dir = tempfile::tempdir().unwrap();
    let access = room(&dir).await;
    assert!(access.create(&AccountId::random(), "laptop", Priority::USUAL).await.is_err());
}
