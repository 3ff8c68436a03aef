//! The cases of the list `dialects`: chat, Messages and Responses over a real agent, from recorded requests, made-up engines and real clients.
//!
//! One file per group. What is pure is shown by the room's own tests, run by name; everything else by a running agent with the genuine
//! llama.cpp, or with a scripted engine where a case needs answers that no real model gives on demand.

mod bench;
mod captures;
mod clients;
mod desk;
mod events;
mod lifecycle;
mod order;
mod rules;

use super::Case;

/// All of them, grouped by what they share: cheap things first.
#[must_use]
pub fn table() -> Vec<Case> {
    [captures::CASES, events::CASES, rules::CASES, lifecycle::CASES, clients::CASES, bench::CASES].concat()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_id_of_the_list_has_a_case_and_no_case_is_unlisted() {
        let list = crate::list::parse("dialects", include_str!("../../../../accept/dialects.toml")).unwrap();
        let ids: Vec<&str> = list.cases.iter().map(|c| c.id.as_str()).collect();
        let plan = crate::plan::plan(&ids, &super::table(), &[], None).unwrap();
        assert!(plan.complete && plan.ids.len() == 35, "{plan:?}");
    }
}
