//! Frame pacing: when the screen may be drawn again. A key is answered at once; everything else waits for the eye and
//! for a slow link.

use std::time::{Duration, Instant};

/// Minimum time between two frames without a key press: more than 20 frames per second cannot be read.
const FRAME: Duration = Duration::from_millis(50);

/// Minimum time between two frames for key presses.
const KEY_FRAME: Duration = Duration::from_millis(8);

/// After each frame, drawing pauses for this multiple of the frame's write time: a slow link gets fewer frames.
const REST: u32 = 2;

/// Upper limit of that pause: even the slowest link shows something.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// What is to be drawn, and the last frames.
#[derive(Debug)]
pub(super) struct FramePacing {
    /// Whether the screen needs a redraw.
    pub(super) changed: bool,
    /// Whether a key press waits for its frame.
    pub(super) urgent: bool,
    /// Time of the last frame.
    drawn: Option<Instant>,
    /// Time of the last frame for a key press: the first key after a frame without one does not wait.
    key_drawn: Option<Instant>,
}

impl FramePacing {
    /// Begins with a frame that is due.
    pub(super) fn new() -> Self {
        Self { changed: true, urgent: true, drawn: None, key_drawn: None }
    }

    /// Returns the earliest time for the next frame, if the last one took `written` to be written.
    pub(super) fn next_frame_at(&self, written: Duration) -> Instant {
        let next = if self.urgent {
            self.key_drawn.map(|drawn| drawn + KEY_FRAME)
        } else {
            let rest = (written * (REST + 1)).min(LONGEST_REST);
            self.drawn.map(|drawn| drawn + FRAME.max(rest))
        };
        next.unwrap_or_else(Instant::now)
    }

    /// Records a frame that was begun at this time.
    pub(super) fn record_frame(&mut self, begun: Instant) {
        if self.urgent {
            self.key_drawn = Some(begun);
        }
        (self.changed, self.urgent, self.drawn) = (false, false, Some(begun));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_waits_for_the_frame_of_another_key_only() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let (fast, slow) = (Duration::from_micros(80), Duration::from_millis(60));
        let mut pacing = FramePacing::new();
        pacing.record_frame(after(0));
        assert_eq!(pacing.next_frame_at(fast), after(50));
        assert_eq!(pacing.next_frame_at(slow), after(180));
        pacing.record_frame(after(50));
        pacing.urgent = true;
        assert!(pacing.next_frame_at(fast) <= after(51), "no key for 51 ms");
        pacing.record_frame(after(51));
        pacing.urgent = true;
        assert_eq!(pacing.next_frame_at(slow), after(59));
    }
}
