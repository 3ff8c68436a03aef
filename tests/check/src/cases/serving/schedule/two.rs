//! A real agent with two genuine engines of the tiny model, and conversations with it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::super::super::updates::broken_tree;
use crate::agent::{AgentSetup, AgentUnderTest};
use crate::console::{Console, short};
use crate::http::Reply;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// The model's name.
pub const NAME: &str = "tiny";
/// Time for both engines to come up.
const LOAD: Duration = Duration::from_secs(90);

/// The agent and its model.
pub struct Two {
    agent: AgentUnderTest,
    /// The admin's visitor.
    pub console: Console,
    /// The model.
    pub id: String,
    /// A key.
    pub key: String,
}

/// One conversation of a client that names its session.
pub struct Talk {
    /// Its id.
    pub session: String,
    /// All that was said.
    pub messages: Vec<Value>,
}

/// A count of a document; absent is 0.
pub fn number(part: &Value, name: &str) -> u64 {
    part[name].as_u64().unwrap_or_default()
}

impl Two {
    /// Starts the agent (with the case's break, if that is asked for), and two replicas of the tiny model.
    pub fn start(stage: &mut Stage, task: &Task) -> Result<Self, String> {
        let engine = stage.engine_program(&task.log)?;
        let program = if task.sabotage { broken_tree::agent(task.id, stage, &task.log)? } else { stage.agent_program(&task.log)? };
        let mut agent = AgentUnderTest::start(AgentSetup::dev(program, engine), &task.log)?;
        stage.write_tiny_model(&agent.model_path("tiny.gguf"))?;
        let console = agent.claimed()?;
        let body = json!({"path": "tiny.gguf", "served_model_name": NAME, "replicas": 2, "slots": 4});
        let made = console.expect("POST", "/api/models", Some(&body), &[200, 201])?.json();
        let id = made["id"].as_str().ok_or_else(|| format!("the registered model has no id: {made}"))?.to_owned();
        console.load(&id)?;
        let (_, key) = console.make_key("talks")?;
        let two = Self { agent, console, id, key };
        two.wait_replicas(2, LOAD)?;
        Ok(two)
    }

    /// Fresh conversations.
    pub fn talks(&self, which: Range<usize>) -> Vec<Talk> {
        which.map(Talk::new).collect()
    }

    /// Asks the next question of a conversation, and whatever the answer is.
    pub fn ask(&self, talk: &mut Talk, tokens: u32) -> Result<Reply, String> {
        let turn = talk.messages.len() / 2;
        talk.messages.push(json!({"role": "user", "content": format!("Question {turn} of {}?", talk.session)}));
        let body = json!({"model": NAME, "messages": talk.messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": true}).to_string();
        let bearer = format!("Bearer {}", self.key);
        let headers = [("content-type", "application/json"), ("authorization", bearer.as_str()), ("x-session-id", talk.session.as_str())];
        self.console.http.send("POST", "/v1/chat/completions", &headers, Some(body.as_bytes()))
    }

    /// One turn that must be answered; the answer's document.
    pub fn turn(&self, talk: &mut Talk, tokens: u32) -> Result<Value, String> {
        let reply = self.ask(talk, tokens)?;
        if reply.status != 200 {
            return Err(format!("a turn of {} was answered {}: {}", talk.session, reply.status, short(&reply)));
        }
        let answer = reply.json();
        talk.messages.push(answer["choices"][0]["message"].clone());
        Ok(answer)
    }

    /// Where requests go.
    pub fn routing(&self) -> Result<Value, String> {
        Ok(self.console.expect("GET", &format!("/api/models/{}/dp-routing", self.id), None, &[200])?.json())
    }

    /// One replica of it.
    pub fn rank(&self, replica: &str) -> Result<Value, String> {
        let routing = self.routing()?;
        super::ranks(&routing).into_iter().find(|r| r["replica"] == replica).ok_or_else(|| format!("the replica {replica} is not shown: {routing}"))
    }

    fn wait_replicas(&self, wanted: usize, limit: Duration) -> Result<(), String> {
        let until = Instant::now() + limit;
        loop {
            let routing = self.routing()?;
            let offered = super::ranks(&routing).iter().filter(|r| r["offered"] == true).count();
            if offered == wanted {
                return Ok(());
            }
            if Instant::now() > until {
                let model = self.console.model(&self.id)?;
                return Err(format!("{offered} of {wanted} replicas take requests after {} s: {}", limit.as_secs(), model["state"]));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// kill -9 of the engine behind a replica.
    pub fn kill(&self, replica: &str) -> Result<(), String> {
        let names = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(replica));
        let pids: Vec<i32> = self.agent.engines().into_iter().filter(names).collect();
        if pids.is_empty() {
            return Err(format!("no process names the replica {replica}"));
        }
        for pid in pids {
            kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|e| format!("kill -9 {pid}: {e}"))?;
        }
        Ok(())
    }

    /// Waits until a replica takes requests as another launch.
    pub fn wait_back(&self, replica: &str, launch: &str, limit: Duration) -> Result<Value, String> {
        let until = Instant::now() + limit;
        loop {
            let rank = self.rank(replica)?;
            if rank["offered"] == true && rank["launch"] != launch {
                return Ok(rank);
            }
            if Instant::now() > until {
                return Err(format!("the replica {replica} did not come back within {} s: {rank}", limit.as_secs()));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Has all conversations at work, kills the replica that has most to do, and expects every answer to be good. Returns which it was.
    pub fn kill_under_load(&self, talks: &mut [Talk], result: &mut CaseResult) -> Result<String, String> {
        let over = AtomicBool::new(false);
        let (bad, answered, victim) = thread::scope(|scope| {
            let running: Vec<_> = talks
                .iter_mut()
                .map(|talk| {
                    let over = &over;
                    scope.spawn(move || -> (usize, Vec<String>) {
                        let (mut answered, mut bad) = (0, Vec::new());
                        while !over.load(Ordering::Relaxed) {
                            match self.turn(talk, 40) {
                                Ok(_) => answered += 1,
                                Err(sentence) => {
                                    talk.messages.pop();
                                    bad.push(sentence);
                                }
                            }
                        }
                        (answered, bad)
                    })
                })
                .collect();
            let killed = self.kill_the_busiest();
            // Enough time for everybody's next turns to meet the gap.
            thread::sleep(Duration::from_secs(3));
            over.store(true, Ordering::Relaxed);
            let (mut answered, mut bad) = (0, Vec::new());
            for one in running {
                let (n, more) = one.join().unwrap_or_else(|_| (0, vec!["a client's thread ended badly".to_owned()]));
                answered += n;
                bad.extend(more);
            }
            (bad, answered, killed)
        });
        let victim = victim?;
        result.figure("answers", answered as f64);
        let first = bad.first().cloned().unwrap_or_default();
        result.expect(bad.is_empty() && answered > 0, format!("{answered} answers while {victim} was killed, {} errors {first}", bad.len()));
        Ok(victim)
    }

    /// Kills the replica that has most in flight, once one has some.
    fn kill_the_busiest(&self) -> Result<String, String> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let routing = self.routing()?;
            let busiest = super::ranks(&routing).into_iter().max_by_key(|r| number(r, "in_flight"));
            if let Some(rank) = busiest.filter(|r| number(r, "in_flight") > 0)
                && let Some(name) = rank["replica"].as_str()
            {
                self.kill(name)?;
                return Ok(name.to_owned());
            }
            if Instant::now() > until {
                return Err(format!("no replica ever had a request in flight: {routing}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The model's page shows the same replicas.
    pub fn page_shows(&self, result: &mut CaseResult, routing: &Value) -> Result<(), String> {
        let page = self.console.page(&format!("/ui/models/{}", self.id))?;
        let all = super::ranks(routing).iter().all(|r| r["replica"].as_str().is_some_and(|name| page.contains(name)));
        result.expect(all && page.contains("data-routing"), "the model's page shows where its requests go");
        Ok(())
    }

    /// Ends the agent and looks for what it left.
    pub fn end(mut self, result: &mut CaseResult) -> Result<(), String> {
        let said = self.agent.said();
        result.expect(!said.contains("panicked"), "the agent's log shows no panic");
        let code = self.agent.stop(Duration::from_secs(40))?;
        result
            .expect(code == Some(0) && self.agent.engines().is_empty(), format!("the agent ends cleanly and leaves no engine (exit code {code:?})"));
        Ok(())
    }
}
