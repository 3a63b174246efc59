//! Reading pages as the aggregator does.

use std::collections::HashMap;

use gaunt_schema::{ScrapeFailure, ScrapedPage, TargetId, text};

/// Reads each page as the one that follows the last page of its target: the busiest processor is known from both.
#[derive(Default)]
pub(crate) struct PageDecoder {
    limits: text::PageLimits,
    templates: text::TemplateCache,
    states: HashMap<TargetId, text::TemplateState>,
}

impl PageDecoder {
    /// Reads a page of a target.
    pub(crate) fn decode(
        &mut self,
        target: TargetId,
        page: &str,
    ) -> Result<ScrapedPage, ScrapeFailure> {
        let state = self.states.entry(target).or_default();
        self.templates.decode_page(state, page.as_bytes(), &self.limits)
    }
}
