//! A waker for futures that are polled within one task and wake each other.
//!
//! A task that is woken while it runs is scheduled again, and the runtime wakes another thread to take it over. Between
//! two futures of one task that is wasted: here the poll itself repeats instead.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// The futures wait: a wake goes to the task.
const WAITING: u8 = 0;
/// The futures are being polled.
const POLLING: u8 = 1;
/// They were woken since the poll began, or since the task was woken.
const WOKEN: u8 = 2;

/// How often a poll repeats before the task gives way to others: a body takes a few turns for each read.
const MOST_TURNS: u32 = 32;

/// Wakes a task, unless the poll that was woken can repeat itself.
#[derive(Debug)]
struct PollState {
    task: Waker,
    phase: AtomicU8,
}

impl Wake for PollState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.phase.swap(WOKEN, Ordering::AcqRel) == WAITING {
            self.task.wake_by_ref();
        }
    }
}

/// The waker of futures that wake each other; made at the first poll.
#[derive(Debug, Default)]
pub(super) struct PollWaker(Option<(Arc<PollState>, Waker)>);

impl PollWaker {
    /// Polls until the result is ready, or until no future was woken during the last turn.
    pub(super) fn poll_until_idle<T>(
        &mut self,
        context: &Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let (state, waker) = self.of_task(context.waker());
        let mut inner = Context::from_waker(waker);
        for _ in 0..MOST_TURNS {
            state.phase.swap(POLLING, Ordering::AcqRel);
            if let Poll::Ready(output) = poll(&mut inner) {
                return Poll::Ready(output);
            }
            let idle =
                state.phase.compare_exchange(POLLING, WAITING, Ordering::AcqRel, Ordering::Acquire);
            if idle.is_ok() {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn of_task(&mut self, task: &Waker) -> &(Arc<PollState>, Waker) {
        if self.0.as_ref().is_some_and(|(state, _)| !state.task.will_wake(task)) {
            self.0 = None;
        }
        self.0.get_or_insert_with(|| {
            let phase = AtomicU8::new(WAITING);
            let state = Arc::new(PollState { task: task.clone(), phase });
            let waker = Waker::from(state.clone());
            (state, waker)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Counts its wakes.
    #[derive(Debug, Default)]
    struct CountedTask(AtomicU32);

    impl Wake for CountedTask {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wake_during_a_poll_repeats_it_and_a_later_one_wakes_the_task() {
        let task = Arc::new(CountedTask::default());
        let task_waker = Waker::from(task.clone());
        let context = Context::from_waker(&task_waker);
        let (mut waker, mut turns, mut kept) = (PollWaker::default(), 0, None);
        let polled = waker.poll_until_idle(&context, |inner| {
            turns += 1;
            kept = Some(inner.waker().clone());
            if turns < 3 {
                inner.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        assert_eq!((polled, turns), (Poll::Pending, 3));
        assert_eq!(task.0.load(Ordering::Relaxed), 0);
        let kept = kept.unwrap();
        kept.wake_by_ref();
        kept.wake_by_ref();
        assert_eq!(task.0.load(Ordering::Relaxed), 1, "once until it is polled");
        assert_eq!(waker.poll_until_idle(&context, |_| Poll::Ready(7)), Poll::Ready(7));
    }

    #[test]
    fn poll_that_always_wakes_itself_gives_way() {
        let task = Arc::new(CountedTask::default());
        let task_waker = Waker::from(task.clone());
        let context = Context::from_waker(&task_waker);
        let mut turns = 0;
        let polled = PollWaker::default().poll_until_idle(&context, |inner| {
            turns += 1;
            inner.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!((polled, turns), (Poll::Pending, MOST_TURNS));
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn another_task_is_woken_once_it_polls() {
        let tasks = [Arc::new(CountedTask::default()), Arc::new(CountedTask::default())];
        let (mut waker, mut kept) = (PollWaker::default(), None);
        for task in &tasks {
            let task_waker = Waker::from(task.clone());
            let context = Context::from_waker(&task_waker);
            let polled = waker.poll_until_idle(&context, |inner| {
                kept = Some(inner.waker().clone());
                Poll::<()>::Pending
            });
            assert_eq!(polled, Poll::Pending);
        }
        kept.unwrap().wake();
        assert_eq!(tasks.map(|task| task.0.load(Ordering::Relaxed)), [0, 1]);
    }
}
