//! A page of node_exporter as constant text with places for values, so that a scrape only fills in numbers.

use std::fmt::Write as _;

use super::decimal::Decimal;

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyKind {
    Counter,
    Gauge,
    Untyped,
    Summary,
}

/// Where a value of a page comes from: `S` is a source that the filler of the template understands.
#[derive(Clone, Debug)]
pub(super) enum LineValue<S> {
    /// It never changes.
    Constant(Decimal),
    /// It is computed at each scrape.
    Source(S),
}

/// A page without its values.
#[derive(Clone, Debug)]
pub(super) struct PageTemplate<S> {
    text: String,
    /// Each source with the end of the text before it.
    slots: Vec<(usize, S)>,
}

/// The families of a page that is being made.
#[derive(Debug)]
pub(super) struct TemplateBuilder<S> {
    families: Vec<Family<S>>,
}

#[derive(Debug)]
struct Family<S> {
    name: String,
    kind: FamilyKind,
    help: String,
    /// Suffix of the name, labels with braces, value.
    lines: Vec<(&'static str, String, LineValue<S>)>,
}

impl FamilyKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Untyped => "untyped",
            Self::Summary => "summary",
        }
    }
}

impl<S> TemplateBuilder<S> {
    pub(super) const fn new() -> Self {
        Self { families: Vec::new() }
    }

    /// Begins a family; the lines that follow belong to it.
    pub(super) fn begin_family(&mut self, name: &str, kind: FamilyKind, help: &str) {
        self.families.push(Family {
            name: name.to_owned(),
            kind,
            help: help.to_owned(),
            lines: Vec::new(),
        });
    }

    /// Adds a line with labels such as `{device="lo"}`, or none.
    pub(super) fn add_line(&mut self, labels: impl Into<String>, value: LineValue<S>) {
        self.add_suffixed("", labels, value);
    }

    /// Adds a line whose name has a suffix, of a summary.
    pub(super) fn add_suffixed(
        &mut self,
        suffix: &'static str,
        labels: impl Into<String>,
        value: LineValue<S>,
    ) {
        if let Some(family) = self.families.last_mut() {
            family.lines.push((suffix, labels.into(), value));
        }
    }

    /// A family of one line without labels.
    pub(super) fn add_single(&mut self, name: &str, kind: FamilyKind, help: &str, source: S) {
        self.begin_family(name, kind, help);
        self.add_line("", LineValue::Source(source));
    }

    /// The template: families by name.
    pub(super) fn finish(mut self) -> PageTemplate<S> {
        self.families.sort_by(|left, right| left.name.cmp(&right.name));
        let mut template = PageTemplate { text: String::new(), slots: Vec::new() };
        for family in self.families.into_iter().filter(|family| !family.lines.is_empty()) {
            let Family { name, kind, help, lines } = family;
            let kind = kind.as_str();
            let _ = write!(template.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (suffix, labels, value) in lines {
                let _ = write!(template.text, "{name}{suffix}{labels} ");
                match value {
                    LineValue::Constant(value) => value.write_shortest(&mut template.text),
                    LineValue::Source(source) => template.slots.push((template.text.len(), source)),
                }
                template.text.push('\n');
            }
        }
        template
    }
}

impl<S> PageTemplate<S> {
    /// Appends the page with the values that `write` appends for each source.
    pub(super) fn fill(&self, out: &mut String, mut write: impl FnMut(&S, &mut String)) {
        out.reserve(self.text.len() + self.slots.len() * 14);
        let mut start = 0;
        for (end, source) in &self.slots {
            out.push_str(&self.text[start..*end]);
            start = *end;
            write(source, out);
        }
        out.push_str(&self.text[start..]);
    }
}
