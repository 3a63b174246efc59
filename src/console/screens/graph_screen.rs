//! Graph screen: one metric of a GPU or port over the kept history, with its limit and the band of its peers.

use std::time::Duration;

use gaunt_schema::{DeviceClass, SanitizedText, UnixMs};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    action::KeyIntent,
    console_state::{ConsoleState, ScreenLayout},
    display_text,
    evidence_history::{EvidenceHistory, due_questions},
    key_binding::{BACK, KeyBinding, NODE_KEYS},
    screen::GraphScreen,
    screen_view::{ScreenOutcome, ScreenView},
    theme::{StyleRole, Theme},
    time_zoom::{SPAN_KEYS, next_span},
    view::{
        axis_graph::{self, AXIS, AxisGraph},
        device_graphs, draw_lines,
    },
};
use gaunt_api::{
    DeviceDetail, Filter, HistoryAggregation, HistoryQuery, MetricHistory, Question, Subject,
    filter::quote_text, history_answer::MAX_POINTS,
};

/// Time between two answers: a graph is read, not watched, and the band of a large job costs more than a table.
const RENEWED: Duration = Duration::from_secs(5);

/// The same for what is beyond the memory of the aggregator: a store computes it.
const LONGER_RENEWED: Duration = Duration::from_mins(1);

/// Lines of the screen that are not the graph: three titles and the time axis.
const AROUND: usize = 4;

/// What a graph shows.
#[derive(Clone, Copy)]
struct ShownHistory<'a> {
    history: &'a MetricHistory,
    span_ms: u64,
    /// Whether it is from beyond the memory of the aggregator: each point is a step with a mean, a minimum and a maximum.
    is_longer: bool,
    /// What there is beyond it.
    note: &'static str,
}

impl ScreenView for GraphScreen {
    fn header_title(&self) -> String {
        format!("{} {}", self.0, self.2)
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[BACK], SPAN_KEYS, NODE_KEYS]
    }

    fn node_name(&self) -> Option<&SanitizedText> {
        Some(&self.0)
    }

    fn questions(&self, state: &ConsoleState) -> Vec<Question> {
        let mut questions = vec![Question::Node(self.0.clone())];
        for (queries, renewed) in [
            (self.kept_queries(state), RENEWED),
            (self.longer_query(state).into_iter().collect(), LONGER_RENEWED),
        ] {
            questions.extend(due_questions(queries, &state.data.histories, state.now - renewed));
        }
        questions
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        self.stored_history(state, 0).map(|history| history.at)
    }

    fn extra_age(&self) -> Duration {
        RENEWED
    }

    fn history_queries(&self, state: &ConsoleState) -> Vec<HistoryQuery> {
        self.kept_queries(state).into_iter().chain(self.longer_query(state)).collect()
    }

    fn handle_intent(&self, state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
        let Some(shown) = self.shown_history(state) else { return ScreenOutcome::Unchanged };
        state.cursors.graph_span = match intent {
            KeyIntent::ShorterSpan | KeyIntent::LongerSpan => {
                Some(next_span(shown.span_ms.div_ceil(60_000), intent))
            }
            _ => return ScreenOutcome::Unchanged,
        };
        ScreenOutcome::Redraw
    }

    /// Draws the graph over the whole screen.
    ///
    /// ```text
    ///  gpu003 GPU 5  power   312 W now   limit 700 W
    ///  · peers 640 W to 698 W: other GPUs of job 8812
    ///  last 15m   + shorter   - longer
    ///     700 W   ┤──────────────────────────────
    ///             │······························
    ///       0 W   │⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿
    ///              15m ago                    now
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let (Some(device), Some(shown)) = (self.device(state), self.shown_history(state)) else {
            return self.draw_waiting(buffer, area, "the history", state, theme);
        };
        let Some(metric) = device_graphs::find_graph(self.1, &self.3) else {
            return self.draw_waiting(buffer, area, "the history", state, theme);
        };
        let width = usize::from(area.width);
        let ShownHistory { history, span_ms: span, note, .. } = shown;
        let newest_of = |points| EvidenceHistory::newest_of(points, history.step_ms, span);
        let points = newest_of(&history.mean);
        let peers = if shown.is_longer {
            Some((newest_of(&history.low), newest_of(&history.high)))
        } else {
            self.peer_histories(state).map(|(low, high)| {
                let newest = |history| EvidenceHistory::newest_points(history, span);
                (newest(low), newest(high))
            })
        };
        let limit = metric.limit_value(device);
        let every = points.iter().chain(peers.iter().flat_map(|(_, high)| high.iter()));
        let largest = every.flatten().copied().filter(|v| v.is_finite()).fold(0.0, f32::max);
        let number = |value: f32| theme.units().format_value(f64::from(value), metric.unit());
        let title = theme.style_for(StyleRole::Title);
        let stated = limit.map_or_else(String::new, |limit| format!("   limit {}", number(limit)));
        let facts = format!("   {} now{stated}", metric.render_current(device, theme.units()));
        let newest = |points: &[Option<f32>]| points.iter().rev().take(3).flatten().next().copied();
        let band = peers.and_then(|(low, high)| newest(low).zip(newest(high)));
        let band = band.map_or_else(String::new, |(low, high)| {
            let (low, high) = (number(low), number(high));
            if shown.is_longer {
                return format!(" · lowest {low} and highest {high} in the newest step");
            }
            let (_, whose) = self.peers_name(state);
            format!(" · peers {low} to {high}: {whose}")
        });
        let duration = display_text::format_duration(Duration::from_millis(span));
        let dim = theme.style_for(StyleRole::Dim);
        let mut lines = vec![
            Line::from(vec![
                Span::styled(format!(" {} {}  {}", self.0, self.2, metric.name), title),
                Span::raw(facts),
            ]),
            Line::styled(band, dim),
            Line::styled(format!(" last {duration}{note}   + shorter   - longer"), dim),
        ];
        let graph = AxisGraph {
            points,
            peers,
            top: metric.scale_top(largest, limit),
            limit: limit.map(|limit| (limit, format!("limit {}", number(limit)))),
            unit: metric.unit(),
            span: Duration::from_millis(span),
        };
        let columns = width.saturating_sub(AXIS + 4);
        let height = usize::from(area.height).saturating_sub(AROUND).max(1);
        lines.extend(axis_graph::render_axis_graph(&graph, columns, height, theme));
        draw_lines(buffer, area, &lines);
        ScreenLayout { page: height, ..ScreenLayout::default() }
    }
}

impl GraphScreen {
    const fn subject(&self) -> Option<Subject> {
        match self.1 {
            DeviceClass::Gpu => Some(Subject::Gpus),
            DeviceClass::Port => Some(Subject::Ports),
            _ => None,
        }
    }

    fn device<'a>(&self, state: &'a ConsoleState) -> Option<&'a DeviceDetail> {
        let detail = state.node_detail(&self.0)?;
        detail.devices.iter().find(|device| device.class == self.1 && device.name == self.2)
    }

    /// Returns the clause for the rows of the peers, and their name: the job of the node, if there is one, else the node.
    fn peers_name(&self, state: &ConsoleState) -> (String, String) {
        let jobs = state.node_detail(&self.0).map_or(&[][..], |detail| &detail.line.jobs);
        match (self.1, jobs) {
            (DeviceClass::Gpu, [job]) => {
                (format!("job={}", quote_text(job)), format!("other GPUs of job {job}"))
            }
            (DeviceClass::Gpu, _) => {
                (format!("node={}", quote_text(&self.0)), format!("other GPUs of {}", self.0))
            }
            _ => (format!("node={}", quote_text(&self.0)), format!("other ports of {}", self.0)),
        }
    }

    /// Returns the filters for the device and for its peers.
    fn filters(&self, state: &ConsoleState) -> Option<(String, String)> {
        let node = format!("node={}", quote_text(&self.0));
        let own = if self.1 == DeviceClass::Gpu {
            format!("{node} and gpu={}", quote_text(self.2.rsplit(' ').next()?))
        } else {
            let (device, port) = self.2.rsplit_once('/')?;
            format!("{node} and device={} and port={}", quote_text(device), quote_text(port))
        };
        // The peers are known with the node.
        let (among, _) = self.peers_name(state);
        Some((own.clone(), format!("{among} and not ({own})")))
    }

    /// The questions for what is in memory: the device itself, then the lowest and the highest of its peers.
    fn kept_queries(&self, state: &ConsoleState) -> Vec<HistoryQuery> {
        let Some((own, peers)) = self.filters(state) else { return Vec::new() };
        let asks = [
            self.history_query(&own, HistoryAggregation::Mean, None),
            self.history_query(&peers, HistoryAggregation::Min, None),
            self.history_query(&peers, HistoryAggregation::Max, None),
        ];
        asks.into_iter().flatten().collect()
    }

    /// The question for a span that is longer than what is in memory, once that is known.
    fn longer_query(&self, state: &ConsoleState) -> Option<HistoryQuery> {
        let minutes = state.cursors.graph_span?;
        let kept = EvidenceHistory::known_ms(self.stored_history(state, 0)?);
        let (own, _) = self.filters(state).filter(|_| minutes * 60_000 > kept)?;
        self.history_query(&own, HistoryAggregation::Mean, Some(Duration::from_mins(minutes)))
    }

    fn history_query(
        &self,
        of: &str,
        together: HistoryAggregation,
        span: Option<Duration>,
    ) -> Option<HistoryQuery> {
        let subject = self.subject()?;
        let metric = SanitizedText::new(&subject.find_field(&self.3)?.name);
        let of = Filter::parse(subject, of).ok()?;
        Some(HistoryQuery { metric, of, together, points: MAX_POINTS, span })
    }

    fn stored_history<'a>(&self, state: &'a ConsoleState, at: usize) -> Option<&'a MetricHistory> {
        let ask = self.kept_queries(state).into_iter().nth(at)?;
        state.data.histories.iter().find(|stored| stored.ask == ask)?.history.as_deref()
    }

    /// What the graph shows: what a store has of a longer span, else what is in memory.
    fn shown_history<'a>(&self, state: &'a ConsoleState) -> Option<ShownHistory<'a>> {
        let kept = self.stored_history(state, 0)?;
        let known = EvidenceHistory::known_ms(kept);
        let wanted = state.cursors.graph_span.map(|minutes| minutes * 60_000);
        let Some(ask) = self.longer_query(state) else {
            let span_ms = wanted.map_or(known, |wanted| wanted.min(known));
            let note = if span_ms == known { ", all that is in memory" } else { "" };
            return Some(ShownHistory { history: kept, span_ms, is_longer: false, note });
        };
        let stored = state.data.histories.iter().find(|stored| stored.ask == ask);
        let longer = stored.and_then(|stored| stored.history.as_deref());
        if let Some(history) = longer.filter(|it| EvidenceHistory::known_ms(it) > known) {
            let span_ms = EvidenceHistory::known_ms(history);
            let note = if wanted == Some(span_ms) { "" } else { ", all that the store has" };
            return Some(ShownHistory { history, span_ms, is_longer: true, note });
        }
        let note = match stored {
            None => ", all that is in memory: asking for more",
            Some(_) => ", all that is kept: a longer past needs a store with level \"screens\"",
        };
        Some(ShownHistory { history: kept, span_ms: known, is_longer: false, note })
    }

    /// Returns the lowest and the highest peer.
    fn peer_histories<'a>(
        &self,
        state: &'a ConsoleState,
    ) -> Option<(&'a MetricHistory, &'a MetricHistory)> {
        self.stored_history(state, 1).zip(self.stored_history(state, 2))
    }
}
