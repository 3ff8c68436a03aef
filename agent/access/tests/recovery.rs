//! An admin reset as the person at the machine and an attacker on the network meet it, over a real store.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use warden_access::Access;
use warden_domain::{
    ProblemKind, Secret,
    access::{Accounts, ClientAddr, NewSession},
    change::Changes,
    key::{Keys, Priority},
    recovery::Recovery,
};
use warden_store::Store;

const OLD: &str = "a long enough password";
const NEW: &str = "another long password";
const ID: &str = "00112233445566778899aabbccddeeff";

async fn room(dir: &tempfile::TempDir) -> Arc<Access> {
    Access::open(Store::open(dir.path()).unwrap(), Changes::new()).await.unwrap()
}

fn secret(text: &str) -> Secret<String> {
    Secret::new(text.to_owned())
}

fn from(last: u8) -> ClientAddr {
    ClientAddr([192, 168, 7, last].into())
}

async fn claimed(dir: &tempfile::TempDir) -> (Arc<Access>, NewSession) {
    let access = room(dir).await;
    let code = access.claim_code().await.unwrap().unwrap();
    let session = access.claim(from(1), code.expose(), "ada", &secret(OLD)).await.unwrap();
    (access, session)
}

async fn code(access: &Access) -> String {
    access.reset_code().await.unwrap().expose().clone()
}

#[tokio::test]
async fn the_code_on_the_screen_sets_a_new_password_once_and_setup_stays_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (access, before) = claimed(&dir).await;
    let key = access.create(&before.principal.account, "app", Priority::USUAL).await.unwrap();
    assert!(access.open_reset(ID).await.unwrap());
    assert!(access.setup_state().await.unwrap().done && access.claim_code().await.unwrap().is_none());
    assert!(access.session(before.cookie.expose()).await.unwrap().is_none(), "everybody is signed out");
    assert_eq!(access.login(from(2), "ada", &secret(OLD)).await.unwrap_err().kind, ProblemKind::Unauthorized);

    let code = code(&access).await;
    let session = access.reset_password(from(3), &code.to_lowercase(), "ada", &secret(NEW)).await.unwrap();
    assert!(access.session(session.cookie.expose()).await.unwrap().is_some());
    assert!(access.reset_code().await.is_none());
    assert_eq!(access.reset_password(from(3), &code, "ada", &secret(OLD)).await.unwrap_err().kind, ProblemKind::Conflict);
    access.login(from(4), "ada", &secret(NEW)).await.unwrap();
    let kept = access.list().await.unwrap();
    assert!(kept.iter().any(|one| one.id == key.key.id && one.revoked_at.is_none()), "keys stay");
}

#[tokio::test]
async fn a_reset_is_opened_once_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (access, _) = claimed(&dir).await;
    assert!(access.open_reset(ID).await.unwrap());
    let shown = code(&access).await;
    let reopened = room(&dir).await;
    assert_eq!(code(&reopened).await, shown, "a restart shows the same code");
    reopened.reset_password(from(1), &shown, "ADA", &secret(NEW)).await.unwrap();
    assert!(!reopened.open_reset(ID).await.unwrap(), "the same reset again is nothing");
    assert!(reopened.reset_code().await.is_none());
    reopened.login(from(1), "ada", &secret(NEW)).await.unwrap();
}

#[tokio::test]
async fn a_box_without_an_admin_has_nothing_to_reset() {
    let dir = tempfile::tempdir().unwrap();
    let access = room(&dir).await;
    assert!(!access.open_reset(ID).await.unwrap());
    assert!(access.reset_code().await.is_none() && access.claim_code().await.unwrap().is_some());
    let refused = access.reset_password(from(1), "ABCD-EFGH", "ada", &secret(NEW)).await.unwrap_err();
    assert_eq!(refused.kind, ProblemKind::Conflict);
}

#[tokio::test]
async fn a_wrong_name_is_told_only_to_who_knows_the_code() {
    let dir = tempfile::tempdir().unwrap();
    let (access, _) = claimed(&dir).await;
    access.open_reset(ID).await.unwrap();
    let guess = access.reset_password(from(1), "XXXX-XXXX", "eve", &secret(NEW)).await.unwrap_err();
    assert_eq!(guess.kind, ProblemKind::Forbidden);
    assert!(!guess.full_text().contains("ada"));
    let code = code(&access).await;
    let typo = access.reset_password(from(2), &code, "adda", &secret(NEW)).await.unwrap_err();
    assert_eq!(typo.kind, ProblemKind::NotFound);
    assert!(typo.full_text().contains("ada"));
    access.reset_password(from(2), &code, "ada", &secret(NEW)).await.unwrap();
}

#[tokio::test]
async fn ten_wrong_codes_make_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (access, _) = claimed(&dir).await;
    access.open_reset(ID).await.unwrap();
    let first = code(&access).await;
    let mut tries = tokio::task::JoinSet::new();
    for n in 0..10 {
        let access = access.clone();
        tries.spawn(async move { access.reset_password(from(n), "XXXX-XXXX", "ada", &secret(NEW)).await.unwrap_err() });
    }
    while tries.join_next().await.is_some() {}
    assert_ne!(code(&access).await, first);
    assert_eq!(access.reset_password(from(20), &first, "ada", &secret(NEW)).await.unwrap_err().kind, ProblemKind::Forbidden);
    let reopened = room(&dir).await;
    assert_eq!(code(&reopened).await, code(&access).await);
}
