//! Names of model files that are split over several parts: `name-00001-of-00003.gguf`.
//!
//! In: a file name. Out: its place in the set and the names of all parts. Pure.

/// A file name that says it is a part of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// What comes before the numbers.
    pub(crate) stem: String,
    /// Number of this part, from 1.
    pub(crate) number: u32,
    /// How many parts there are.
    pub(crate) count: u32,
}

/// Sets with more parts than this are taken for a mistake.
const MOST_PARTS: u32 = 999;

impl Part {
    /// The names of all parts, in order.
    pub(crate) fn all_names(&self) -> Vec<String> {
        (1..=self.count).map(|number| format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count)).collect()
    }
}

/// Reads the numbers off a file name; `None` for a name of any other form.
pub(crate) fn part_of(file_name: &str) -> Option<Part> {
    let rest = file_name.strip_suffix(".gguf")?;
    let (rest, count) = rest.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let five = |text: &str| if text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit()) { text.parse::<u32>().ok() } else { None };
    let (number, count) = (five(number)?, five(count)?);
    (!stem.is_empty() && (1..=count).contains(&number) && count <= MOST_PARTS).then(|| Part { stem: stem.to_owned(), number, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_set_are_found_by_name() {
        let part = part_of("big-q4-00002-of-00003.gguf").unwrap();
        assert_eq!((part.number, part.count), (2, 3));
        assert_eq!(part.all_names(), ["big-q4-00001-of-00003.gguf", "big-q4-00002-of-00003.gguf", "big-q4-00003-of-00003.gguf"]);
        for plain in ["big.gguf", "a-00004-of-00003.gguf", "a-1-of-3.gguf", "-00001-of-00002.gguf", "a-00001-of-99999.gguf", "a-0000x-of-00003.gguf"]
        {
            assert_eq!(part_of(plain), None, "{plain}");
        }
    }
}
