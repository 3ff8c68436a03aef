//! Which cases run, in which order, and whether that is all of them.
//!
//! In: the ids of the list, the table of cases, the wishes of the command line. Out: the ids to run in the table's order (which groups
//! what shares a boot), or a sentence. Pure.

use crate::cases::{Case, Tier};

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Ids in the order in which they run.
    pub ids: Vec<&'static str>,
    /// True when these are all ids of the list.
    pub complete: bool,
    /// Ids of the list for which no case is written yet; a run without them is never complete.
    pub unwritten: Vec<String>,
}

/// Chooses.
///
/// # Errors
/// A sentence naming ids that the list or the table does not know.
pub fn plan(listed: &[&str], table: &[Case], only: &[String], tier: Option<Tier>) -> Result<Plan, String> {
    let unwritten: Vec<String> = listed.iter().filter(|id| !table.iter().any(|c| c.id == **id)).map(|id| (*id).to_owned()).collect();
    let strangers: Vec<&str> = table.iter().map(|c| c.id).filter(|id| !listed.contains(id)).collect();
    if !strangers.is_empty() {
        return Err(format!("the acceptance list lacks {}; add it there", strangers.join(", ")));
    }
    if let Some(unknown) = only.iter().find(|id| !listed.contains(&id.as_str())) {
        return Err(format!("there is no id {unknown} in the list; it has: {}", listed.join(", ")));
    }
    if let Some(early) = only.iter().find(|id| unwritten.contains(id)) {
        return Err(format!("no case is written for {early} yet; add it to its table in tests/check/src/cases"));
    }
    let ids: Vec<&'static str> = table
        .iter()
        .filter(|c| only.is_empty() || only.iter().any(|id| id == c.id))
        .filter(|c| tier.is_none_or(|t| t == c.tier))
        .map(|c| c.id)
        .collect();
    if ids.is_empty() {
        return Err("nothing is left to run: --only and --tier exclude each other".to_owned());
    }
    let complete = ids.len() == listed.len();
    Ok(Plan { ids, complete, unwritten })
}

/// The deliberate break whose turn it is on a day: each comes up once in as many days as there are.
#[must_use]
pub fn turn<'a>(breakable: &[&'a str], day: i64) -> Option<&'a str> {
    let count = i64::try_from(breakable.len()).ok().filter(|n| *n > 0)?;
    usize::try_from(day.rem_euclid(count)).ok().and_then(|n| breakable.get(n)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::SLICE as TABLE;

    fn listed() -> Vec<&'static str> {
        TABLE.iter().map(|c| c.id).collect()
    }

    #[test]
    fn every_id_of_the_projects_list_has_a_case() {
        let list = crate::list::parse("slice", include_str!("../../accept/slice.toml")).unwrap();
        let ids: Vec<&str> = list.cases.iter().map(|c| c.id.as_str()).collect();
        let plan = plan(&ids, TABLE, &[], None).unwrap();
        assert!(plan.complete);
        assert_eq!(plan.ids.len(), ids.len());
    }

    #[test]
    fn a_few_ids_are_not_taken_for_all() {
        let plan = plan(&listed(), TABLE, &["claim-once".to_owned()], None).unwrap();
        assert_eq!(plan, Plan { ids: vec!["claim-once"], complete: false, unwritten: Vec::new() });
    }

    #[test]
    fn a_misspelt_id_is_refused_instead_of_running_nothing() {
        assert!(plan(&listed(), TABLE, &["claim-twice".to_owned()], None).unwrap_err().contains("claim-twice"));
    }

    #[test]
    fn a_list_with_an_id_nobody_wrote_is_never_complete() {
        let mut more = listed();
        more.push("future-thing");
        let whole = plan(&more, TABLE, &[], None).unwrap();
        assert!(!whole.complete);
        assert_eq!(whole.unwritten, ["future-thing"]);
        assert!(plan(&more, TABLE, &["future-thing".to_owned()], None).unwrap_err().contains("future-thing"));
    }

    #[test]
    fn every_break_has_its_day() {
        let breakable = ["a", "b", "c"];
        let week: Vec<_> = (-1..3).filter_map(|day| turn(&breakable, day)).collect();
        assert_eq!(week, ["c", "a", "b", "c"]);
        assert_eq!(turn(&[], 4), None);
    }
}
