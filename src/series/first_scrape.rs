//! Wait for the first scrape of a server that was started together with us.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::QueryError;

/// The longest usual time between two scrapes, after which a server that scrapes has series.
const SCRAPE_INTERVAL: Duration = Duration::from_mins(1);

/// How long a server may take to answer and to show what it has scraped, beyond that.
const MARGIN: Duration = Duration::from_secs(30);

/// The time between two attempts.
const RETRY: Duration = Duration::from_secs(5);

/// Opens a server. While it has no series yet, it is asked again until a scrape must have been made, and until that is as old
/// as what is read (`lag`); then its error is returned. Other errors are returned at once.
pub async fn wait_for_first_scrape<T>(
    lag: Duration,
    mut open: impl AsyncFnMut() -> Result<T, QueryError>,
) -> Result<T, QueryError> {
    let deadline = Instant::now() + SCRAPE_INTERVAL + lag + MARGIN;
    let mut is_said = false;
    loop {
        let error = match open().await {
            Err(error) if error.may_follow_start() && Instant::now() < deadline => error,
            result => return result,
        };
        if !is_said {
            let left = deadline.duration_since(Instant::now()).as_secs();
            tracing::warn!("{error}; asking again for up to {left} s");
            is_said = true;
        }
        sleep(RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_scrapes() -> QueryError {
        QueryError::NoScrapes { url: "http://a".to_owned(), selector: String::new() }
    }

    fn no_series() -> QueryError {
        QueryError::NoSeries { url: "http://a".to_owned(), selector: String::new(), names: 600 }
    }

    /// Opens a server whose first answers are these errors, and counts the attempts.
    async fn open(mut errors: Vec<QueryError>) -> (Result<(), QueryError>, usize, Duration) {
        let (mut attempts, begun) = (0, Instant::now());
        let result = wait_for_first_scrape(Duration::from_secs(25), async || {
            attempts += 1;
            errors.pop().map_or(Ok(()), Err)
        })
        .await;
        (result, attempts, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn server_without_a_scrape_yet_is_asked_again() {
        let (result, attempts, waited) = open(vec![no_scrapes(), no_series(), no_series()]).await;
        assert_eq!((result, attempts, waited), (Ok(()), 4, RETRY * 3));
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_never_has_series_is_an_error_in_the_end() {
        let (result, attempts, waited) = open(vec![no_series(); 100]).await;
        assert_eq!(result, Err(no_series()));
        assert_eq!((attempts, waited), (24, Duration::from_secs(115)));
    }

    #[tokio::test(start_paused = true)]
    async fn other_error_is_returned_at_once() {
        let wrong = QueryError::Address("a".to_owned());
        let (result, attempts, _) = open(vec![wrong.clone()]).await;
        assert_eq!((result, attempts), (Err(wrong), 1));
    }
}
