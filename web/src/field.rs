//! One input of a form: what the field component needs.

/// A text input with its label, hint and, after a refusal, its error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Field {
    pub(crate) id: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) label: &'static str,
    pub(crate) value: String,
    pub(crate) hint: &'static str,
    pub(crate) error: Option<String>,
    pub(crate) autocomplete: &'static str,
    pub(crate) placeholder: &'static str,
    /// The word "(optional)", or nothing.
    pub(crate) optional: &'static str,
    pub(crate) code: bool,
    pub(crate) required: bool,
    pub(crate) focus: bool,
}

impl Field {
    pub(crate) fn text(id: &'static str, label: &'static str) -> Self {
        Self { id, kind: "text", label, autocomplete: "off", required: true, ..Self::default() }
    }

    pub(crate) fn password(id: &'static str, label: &'static str, autocomplete: &'static str) -> Self {
        Self { id, kind: "password", label, autocomplete, required: true, ..Self::default() }
    }

    pub(crate) fn value(mut self, value: impl Into<String>) -> Self {
        self.value = value.into();
        self
    }

    pub(crate) const fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    pub(crate) const fn placeholder(mut self, placeholder: &'static str) -> Self {
        self.placeholder = placeholder;
        self
    }

    pub(crate) const fn autocomplete(mut self, autocomplete: &'static str) -> Self {
        self.autocomplete = autocomplete;
        self
    }

    pub(crate) const fn optional(mut self, word: &'static str) -> Self {
        self.optional = word;
        self.required = false;
        self
    }

    pub(crate) const fn code(mut self) -> Self {
        self.code = true;
        self
    }

    pub(crate) const fn focus(mut self) -> Self {
        self.focus = true;
        self
    }

    pub(crate) fn error(mut self, error: Option<String>) -> Self {
        self.error = error;
        self
    }
}

/// One of a few: what the select component needs.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) id: &'static str,
    pub(crate) label: &'static str,
    pub(crate) chosen: String,
    /// Value and what people read.
    pub(crate) options: Vec<(&'static str, &'static str)>,
}
