//! A request for a model that is stopped: it loads the model where it may, waits as long as it can, and says why when that does not help.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

mod scripted;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use scripted::{Act, Bench, Engine, json, text, until};
use warden_domain::{
    engine::Capacity,
    ids::ModelId,
    model::StateReason,
    replica::{Demand, Wanted},
    routing::Routing,
};
use warden_gateway::GatewayLimits;

/// Answers what it was told to, and counts.
struct Told(Mutex<Wanted>, AtomicUsize);

impl Demand for Told {
    fn wanted(&self, name: &str) -> Wanted {
        assert_eq!(name, "tiny");
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.lock().unwrap().clone()
    }
}

fn told(wanted: Wanted) -> Arc<Told> {
    Arc::new(Told(Mutex::new(wanted), AtomicUsize::new(0)))
}

const ASK: &str = r#"{"model":"tiny","messages":[{"role":"user","content":"Hi"}]}"#;

fn patient_for(whole: Duration) -> GatewayLimits {
    GatewayLimits { patience_whole: whole, ..GatewayLimits::default() }
}

#[tokio::test]
async fn a_request_waits_for_the_model_that_it_loads_and_is_answered_by_it() {
    let demand = told(Wanted::Coming);
    let bench = Bench::demanding(GatewayLimits::default(), demand.clone());
    let engine = Engine::start(&bench.dir, "e0", vec![json("200 OK", r#"{"choices":[]}"#)]);
    let (answer, ()) = tokio::join!(bench.chat(ASK), async {
        until(|| demand.1.load(Ordering::SeqCst) > 1, "serving was not told").await;
        assert!(engine.bodies().is_empty());
        bench.serving.offer(std::slice::from_ref(&engine.socket));
    });
    assert_eq!(answer.status(), 200);
    assert_eq!(text(answer).await, r#"{"choices":[]}"#);
    assert_eq!(engine.bodies().len(), 1);
}

#[tokio::test]
async fn a_load_that_fails_is_told_to_who_waits_for_it() {
    let demand = told(Wanted::Coming);
    let bench = Bench::demanding(GatewayLimits::default(), demand.clone());
    let (answer, ()) = tokio::join!(bench.chat(ASK), async {
        until(|| demand.1.load(Ordering::SeqCst) > 0, "serving was not told").await;
        let reason =
            StateReason { code: "engine_failed".to_owned(), message: "The file is cut.".to_owned(), hint: Some("Fetch it again.".to_owned()) };
        *demand.0.lock().unwrap() = Wanted::Failed(reason);
    });
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    let words = text(answer).await;
    assert!(words.contains("The file is cut.") && words.contains("Fetch it again."), "{words}");
}

#[tokio::test]
async fn who_waits_for_a_model_that_is_reloaded_is_told_to_come_again_and_not_that_there_is_none() {
    for (wanted, status) in [(Wanted::Coming, 503), (Wanted::Not, 404)] {
        let bench = Bench::demanding(GatewayLimits::default(), told(wanted));
        let slow = Act::Slowly(vec![String::new(), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned()], Duration::from_secs(3));
        let engine = Engine::start(&bench.dir, "e0", vec![slow]);
        bench.serving.offer_with(&[(engine.socket.clone(), "1")], Capacity::Slots(1));
        let ask = || tokio::spawn(tower::ServiceExt::oneshot(bench.router(), scripted::post("/v1/chat/completions", ASK)));
        let _runs = ask();
        until(|| engine.bodies().len() == 1, "the first request runs").await;
        let waits = ask();
        let waiting = || bench.gateway.routing(&ModelId::from_stored("mdl_tiny")).unwrap().waiting;
        until(|| waiting() == 1, "the second one waits").await;
        bench.serving.offer(&[]);
        let answer = waits.await.unwrap().unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (status, status == 503));
    }
}

#[tokio::test]
async fn a_model_that_comes_up_while_its_request_is_refused_answers_it_or_is_not_loaded_yet() {
    let mut seen = Vec::new();
    for looks in 0..10 {
        let bench = Bench::demanding(GatewayLimits::default(), told(Wanted::Not));
        let engine = Engine::start(&bench.dir, "e0", vec![json("200 OK", r#"{"choices":[]}"#)]);
        bench.serving.offer_after(looks, &engine.socket);
        seen.push(bench.chat(ASK).await.status().as_u16());
    }
    assert!(seen.contains(&200) && seen.contains(&404) && seen.iter().all(|status| matches!(status, 200 | 404)), "{seen:?}");
}

#[tokio::test]
async fn who_cannot_wait_so_long_is_told_to_come_again_and_nobody_waits_where_no_request_loads() {
    let slow = Bench::demanding(patient_for(Duration::from_millis(300)), told(Wanted::Coming)).chat(ASK).await;
    assert_eq!(slow.status(), 503);
    assert!(text(slow).await.contains("is being loaded"));
    let bench = Bench::demanding(GatewayLimits::default(), told(Wanted::Not));
    assert_eq!(bench.chat(ASK).await.status(), 404);
    assert!(bench.ledger.charged.lock().unwrap().is_empty());
}
