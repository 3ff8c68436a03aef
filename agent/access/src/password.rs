//! Passwords and user names: what is allowed, and argon2id over them.
//!
//! Hashing is slow on purpose, so it runs on two threads of its own behind a bounded queue: a flood of logins cannot take the
//! processors or the memory of the box. An unknown name costs exactly what a wrong password costs.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use argon2::{Argon2, PasswordHasher, PasswordVerifier, password_hash::phc::PasswordHash};
use tokio::sync::{mpsc, oneshot};
use warden_domain::{Problem, ProblemKind, Secret};

/// Fewest characters of a password.
const MIN_CHARS: usize = 12;
/// Most bytes of a password.
const MAX_BYTES: usize = 256;
/// Threads that compute hashes. Each hash takes about 19 MiB, and a thread keeps what it once took: were hashes spread over the
/// runtime's blocking threads, every one of those would come to hold its own share.
const AT_ONCE: usize = 2;
/// Callers that may wait for a hash.
const QUEUE: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Refuses passwords nobody should have.
pub(crate) fn check_password(username: &str, password: &Secret<String>) -> Result<(), Problem> {
    let text = password.expose();
    let said = |message: String| Err(Problem::new(ProblemKind::Invalid, message).param("password"));
    if text.chars().count() < MIN_CHARS {
        return said(format!("The password is too short: it needs at least {MIN_CHARS} characters. A few words in a row are easy to remember."));
    }
    if text.len() > MAX_BYTES {
        return said(format!("The password is too long: at most {MAX_BYTES} bytes are allowed."));
    }
    if text.eq_ignore_ascii_case(username) {
        return said("The password must not be the user name.".to_owned());
    }
    Ok(())
}

/// Refuses user names that could not be typed or shown.
pub(crate) fn check_username(username: &str) -> Result<(), Problem> {
    let fine = (1..=64).contains(&username.len()) && username.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@-".contains(&b));
    if fine {
        return Ok(());
    }
    Err(Problem::new(ProblemKind::Invalid, "This user name is not allowed: use 1 to 64 of a-z, A-Z, 0-9, '.', '_', '-' and '@'.").param("username"))
}

/// Computes and checks hashes.
#[derive(Clone)]
pub(crate) struct Hasher {
    jobs: mpsc::Sender<Job>,
    waiting: Arc<AtomicUsize>,
    /// Hash of a password nobody knows, checked when the name is unknown.
    dummy: Arc<str>,
}

impl Hasher {
    /// Computes the dummy hash, which takes a moment; call it off the async threads.
    pub(crate) fn new() -> Result<Self, Problem> {
        let dummy = hash(&crate::token::random_text())?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..AT_ONCE {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new()
                .name("password".to_owned())
                .spawn(move || work(&queue))
                .map_err(|cause| Problem::internal(format!("no thread for checking passwords could be started: {cause}.")))?;
        }
        Ok(Self { jobs, waiting: Arc::new(AtomicUsize::new(0)), dummy: dummy.into() })
    }

    /// The PHC string to keep for a password.
    pub(crate) async fn hash(&self, password: &Secret<String>) -> Result<String, Problem> {
        let password = password.clone();
        self.blocking(move || hash(password.expose())).await?
    }

    /// Whether the password is the one behind the PHC string; without a PHC string it takes as long and is never right.
    pub(crate) async fn verify(&self, phc: Option<String>, password: &Secret<String>) -> Result<bool, Problem> {
        // Nobody has such a password, and hashing megabytes would be a gift to an attacker.
        let known = phc.is_some() && password.expose().len() <= MAX_BYTES;
        let phc = phc.unwrap_or_else(|| self.dummy.to_string());
        let password = if password.expose().len() <= MAX_BYTES { password.clone() } else { Secret::new(String::new()) };
        self.blocking(move || {
            let parsed = PasswordHash::new(&phc).map_err(|cause| Problem::internal(format!("The stored password cannot be read: {cause}.")))?;
            Ok(Argon2::default().verify_password(password.expose().as_bytes(), &parsed).is_ok() && known)
        })
        .await?
    }

    async fn blocking<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        let place = Place::take(&self.waiting)?;
        let (tell, told) = oneshot::channel();
        let job: Job = Box::new(move || {
            let _held = place;
            let _ = tell.send(f());
        });
        self.jobs.send(job).await.map_err(|_| Problem::internal("The agent is stopping."))?;
        told.await.map_err(|_| Problem::internal("Checking the password broke off."))
    }
}

/// One thread's life: a job at a time, until nobody can send another.
fn work(queue: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(job) = job else { return };
        // A job that panics is answered by its dropped sender; the thread is needed for the next one.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

/// A place in the bounded queue.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(waiting: &Arc<AtomicUsize>) -> Result<Self, Problem> {
        let place = Self(Arc::clone(waiting));
        if waiting.fetch_add(1, Ordering::AcqRel) >= QUEUE {
            return Err(Problem::new(ProblemKind::TooManyRequests, "Too many people are signing in at this moment.")
                .hint("Try again in a few seconds.")
                .retry_after(std::time::Duration::from_secs(3)));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn hash(password: &str) -> Result<String, Problem> {
    Argon2::default()
        .hash_password(password.as_bytes())
        .map(|phc| phc.to_string())
        .map_err(|cause| Problem::internal(format!("The password could not be hashed: {cause}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret<String> {
        Secret::new(text.to_owned())
    }

    #[test]
    fn the_password_rule_says_what_is_wrong() {
        assert!(check_password("admin", &secret("correct horse battery")).is_ok());
        assert!(check_password("admin", &secret("pässwörter!!")).is_ok(), "characters are counted, not bytes");
        assert!(check_password("admin", &secret("short")).unwrap_err().message.contains("12"));
        assert!(check_password("admin", &secret(&"x".repeat(257))).unwrap_err().message.contains("256"));
        assert!(check_password("administrator", &secret("Administrator")).is_err());
    }

    #[test]
    fn a_user_name_cannot_carry_markup_or_blanks() {
        assert!(check_username("ada.lovelace@lab-1").is_ok());
        for bad in ["", "a b", "<b>", "a\n", "é", &"a".repeat(65)] {
            assert!(check_username(bad).is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn only_the_right_password_is_right_and_an_unknown_name_never_is() {
        let hasher = Hasher::new().unwrap();
        let phc = hasher.hash(&secret("correct horse battery")).await.unwrap();
        assert!(phc.starts_with("$argon2id$"));
        assert!(hasher.verify(Some(phc.clone()), &secret("correct horse battery")).await.unwrap());
        assert!(!hasher.verify(Some(phc), &secret("wrong")).await.unwrap());
        assert!(!hasher.verify(None, &secret("correct horse battery")).await.unwrap());
        assert!(!hasher.verify(None, &secret("")).await.unwrap());
    }

    #[test]
    fn a_flood_of_logins_is_refused_before_it_eats_memory() {
        let waiting = Arc::new(AtomicUsize::new(0));
        let held: Vec<_> = (0..QUEUE).map(|_| Place::take(&waiting).unwrap()).collect();
        assert_eq!(Place::take(&waiting).err().unwrap().kind, ProblemKind::TooManyRequests);
        drop(held);
        assert!(Place::take(&waiting).is_ok());
    }

    #[tokio::test]
    async fn a_flood_of_logins_stays_on_the_few_threads_whose_memory_is_counted() {
        let hasher = Hasher::new().unwrap();
        let asked = (0..QUEUE).map(|_| {
            let hasher = hasher.clone();
            tokio::spawn(async move { hasher.blocking(|| std::thread::current().id()).await.unwrap() })
        });
        let mut threads = std::collections::HashSet::new();
        for one in asked.collect::<Vec<_>>() {
            threads.insert(one.await.unwrap());
        }
        assert!(threads.len() <= AT_ONCE, "{threads:?}");
    }

    #[tokio::test]
    async fn a_check_that_panics_does_not_lock_everybody_out() {
        let hasher = Hasher::new().unwrap();
        for _ in 0..=AT_ONCE {
            assert!(hasher.blocking(|| panic!("a defect")).await.is_err());
        }
        assert_eq!(hasher.blocking(|| 7).await.unwrap(), 7);
    }
}
