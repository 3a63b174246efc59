//! Queues of outstanding and waiting questions: one for the overview, one for all others, one request in flight each.

use std::{
    collections::VecDeque,
    future::{pending, poll_fn},
    sync::Arc,
    task::Poll,
};

use super::{ConsoleSource, PendingAnswer, SourceError, failed_questions::is_overview};
use gaunt_api::{Answer, Question};

/// Queues of outstanding and waiting questions. A slow answer for one screen must not delay the overview, which every
/// screen shows.
#[derive(Default)]
pub(super) struct QuestionQueues {
    overview: QuestionQueue,
    others: QuestionQueue,
}

/// The outstanding question, at most one, and the questions that wait for it.
#[derive(Default)]
struct QuestionQueue {
    out: Option<(Question, PendingAnswer)>,
    waiting: VecDeque<Question>,
}

impl QuestionQueues {
    /// Enqueues these questions; waiting questions that are not among them are dropped.
    pub(super) fn enqueue_questions(&mut self, questions: Vec<Question>) {
        let (overview, others) = questions.into_iter().partition(is_overview);
        self.overview.enqueue_questions(overview);
        self.others.enqueue_questions(others);
    }

    /// Returns the next answer; pends forever while there is no question.
    pub(super) async fn next_answer(
        &mut self,
        source: &Arc<dyn ConsoleSource>,
    ) -> (Question, Result<Answer, SourceError>) {
        let lanes = [&mut self.overview, &mut self.others];
        if lanes.iter().all(|lane| lane.out.is_none() && lane.waiting.is_empty()) {
            return pending().await;
        }
        let mut lanes = lanes.map(|lane| {
            lane.ask_next(source);
            lane
        });
        poll_fn(|context| {
            for lane in &mut lanes {
                let Some((_, out)) = &mut lane.out else { continue };
                if let Poll::Ready(answer) = out.as_mut().poll(context)
                    && let Some((question, _)) = lane.out.take()
                {
                    return Poll::Ready((question, answer));
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl QuestionQueue {
    /// Questions that wait longer go first, so that a slow source does not answer the same question repeatedly.
    fn enqueue_questions(&mut self, questions: Vec<Question>) {
        self.waiting.retain(|waiting| questions.contains(waiting));
        for question in questions {
            if !self.waiting.contains(&question) {
                self.waiting.push_back(question);
            }
        }
    }

    /// Sends the next waiting question, if none is outstanding.
    fn ask_next(&mut self, source: &Arc<dyn ConsoleSource>) {
        if self.out.is_some() {
            return;
        }
        let Some(question) = self.waiting.pop_front() else { return };
        let answer = source.clone().ask_question(question.clone());
        self.out = Some((question, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers::UnreachableSource;

    #[test]
    fn question_queue_is_first_in_first_out_without_duplicates() {
        let nodes = ["gpu001", "gpu002", "gpu003"].map(|node| Question::Node(node.into()));
        let [one, two, three] = nodes;
        let mut asking = QuestionQueues::default();
        asking.enqueue_questions(vec![Question::Overview, one.clone(), two.clone()]);
        assert_eq!(asking.overview.waiting, [Question::Overview]);
        assert_eq!(asking.others.waiting.pop_front(), Some(one.clone()));
        asking.enqueue_questions(vec![Question::Overview, one.clone(), two.clone()]);
        assert_eq!(asking.others.waiting, [two, one.clone()]);
        asking.enqueue_questions(vec![one.clone(), three.clone()]);
        assert_eq!(asking.others.waiting, [one, three]);
        assert_eq!(asking.overview.waiting, []);
    }

    #[tokio::test]
    async fn overview_is_answered_while_another_question_hangs() {
        let mut asking = QuestionQueues::default();
        let node = Question::Node("gpu001".into());
        asking.others.out = Some((node, Box::pin(pending())));
        let answered = || Ok(Answer::Overview(std::sync::Arc::default()));
        asking.overview.out = Some((Question::Overview, Box::pin(async move { answered() })));
        let lanes = [&mut asking.others, &mut asking.overview];
        assert!(lanes.iter().all(|lane| lane.out.is_some()));
        let source: Arc<dyn ConsoleSource> = Arc::new(UnreachableSource);
        let (question, answer) = asking.next_answer(&source).await;
        assert_eq!(question, Question::Overview);
        assert!(
            answer.is_ok() && asking.others.out.is_some(),
            "the pending question stays outstanding"
        );
    }
}
