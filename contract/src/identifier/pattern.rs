//! Patterns: which identifiers are meant.

use super::gts::{self, GtsPattern};
use super::{Identifier, code, fits, held_to_profile, refused};
use crate::{Error, limits};
use std::sync::Arc;

/// Selects identifiers: one exactly, everything derived from a GTS type, or everything that starts alike.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdPattern {
    text: Arc<str>,
    form: PatternForm,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum PatternForm {
    Gts(GtsPattern),
    /// One code.
    Code,
    /// Every code that begins like the text, without its star.
    CodePrefix,
}

impl IdPattern {
    /// Reads a pattern; every identifier is one.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let form = match text.strip_prefix(gts::PREFIX) {
            Some(body) => {
                fits(text, limits::ID_BYTES_MAX)?;
                PatternForm::Gts(refused(gts::check_pattern(body))?)
            }
            None => {
                held_to_profile(|| false)?;
                fits(text, limits::CODE_BYTES_MAX)?;
                refused(code::check_pattern(text))?.map_or(PatternForm::Code, |_| PatternForm::CodePrefix)
            }
        };
        held_to_profile(|| gts_id::GtsIdPattern::is_valid(text))?;
        Ok(Self { text: text.into(), form })
    }

    /// The pattern as it was sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is written without a star. (A GTS type still covers what is derived from it.)
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.text.ends_with('*')
    }

    /// Whether it selects `id`; the same for the GTS ids `X` and `X~`.
    #[must_use]
    pub fn matches(&self, id: &Identifier) -> bool {
        match &self.form {
            PatternForm::Gts(pattern) => id.key().strip_prefix(gts::PREFIX).is_some_and(|key| pattern.matches(key)),
            PatternForm::Code => *self.text == *id.as_str(),
            PatternForm::CodePrefix => id.as_str().starts_with(self.written()),
        }
    }

    /// Ranks patterns that select the same id: the one of a single id first, then the longer, then the one without `*`.
    #[must_use]
    pub fn specificity(&self) -> usize {
        let is_single = match &self.form {
            PatternForm::Gts(pattern) => pattern.is_single(),
            PatternForm::Code => true,
            PatternForm::CodePrefix => false,
        };
        let single = if is_single { limits::ID_BYTES_MAX + 1 } else { 0 };
        2 * (self.written().len() + single) + usize::from(self.is_exact())
    }

    fn written(&self) -> &str {
        self.text.trim_end_matches('*')
    }
}
