//! Query client: sends one query to the HTTP API of a Prometheus-compatible server, and says what its answer means.

use std::{
    io::Read as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use flate2::read::GzDecoder;
use gaunt_schema::{UnixMs, plain_error};
use gaunt_scrape::HttpClient;
use gaunt_store::compress_request;
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{
        ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, DATE, HeaderMap, HeaderName,
        HeaderValue, USER_AGENT,
    },
};
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::{
    QueryError, QueryErrorSteps, SeriesOptions,
    query_answer::{AnsweredMatrix, QueryAnswer},
    remote_read::{
        FrameError, MAX_FRAME, ReadSelection, STREAMED, decode_frame, encode_read_request,
        take_frame,
    },
};

/// Characters of a server's message that are shown.
const MAX_SHOWN: usize = 200;

/// Bytes of an answer that is not a success: its beginning says what is wrong.
const MAX_ERROR_BODY: usize = 64 << 10;

/// Sends queries to one server.
#[derive(Debug)]
pub(crate) struct QueryClient {
    base: Url,
    /// The address without parameters, which may hold a token.
    shown: String,
    deadline: Duration,
    max_body: usize,
    /// The next steps that errors name.
    next_steps: &'static QueryErrorSteps,
    /// How far the server's clock was ahead of ours at its last answer.
    skew_ms: Option<i64>,
    client: HttpClient,
    /// Keeps the credentials up to date.
    _tasks: JoinSet<()>,
}

/// Checks the address of a server.
pub fn check_server_url(address: &str) -> Result<(), QueryError> {
    parse_base_url(address).map(drop)
}

/// Parses the address of a server: that of its API without `/api/v1`.
fn parse_base_url(address: &str) -> Result<Url, QueryError> {
    let url = Url::parse(address).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.host_str().is_some()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    let mut url = url.ok_or_else(|| {
        let shown = if address.contains('@') { "(not shown)" } else { address };
        QueryError::Address(shown.chars().take(MAX_SHOWN).collect())
    })?;
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/api/v1").unwrap_or(path).to_owned();
    url.set_path(&path);
    Ok(url)
}

impl QueryClient {
    /// Checks the options and reads the credentials.
    pub(crate) async fn open(options: &SeriesOptions) -> Result<Self, QueryError> {
        let base = parse_base_url(&options.url)?;
        let tenant = match &options.tenant {
            Some((header, value)) => Some(
                parse_header(header, value)
                    .ok_or_else(|| QueryError::Tenant(format!("{header}: {value:?}")))?,
            ),
            None => None,
        };
        let mut tasks = JoinSet::new();
        let credentials = options.access.clone().watch_credentials(&mut tasks).await;
        Ok(Self {
            shown: base.as_str().trim_end_matches('/').to_owned(),
            base,
            deadline: options.timeout,
            max_body: options.max_body,
            next_steps: options.next_steps,
            skew_ms: None,
            client: HttpClient::new(credentials, request_headers(tenant), None),
            _tasks: tasks,
        })
    }

    /// How far the server's clock is ahead of ours, in milliseconds, to a second; none if it states no time.
    pub(crate) fn clock_skew_ms(&self) -> Option<i64> {
        self.skew_ms
    }

    /// The error for a window with more samples than the budget.
    pub(crate) fn over_budget(&self, budget: u64) -> QueryError {
        QueryError::OverBudget { next: self.next_steps.budget, url: self.shown.clone(), budget }
    }

    /// The address, for messages.
    pub(crate) fn shown_url(&self) -> &str {
        &self.shown
    }

    /// The values of a label of the series from `from` to `until` that one of the selectors selects, if there are any;
    /// those of `__name__` are the names of metrics.
    pub(crate) async fn list_values<T: AsRef<str>>(
        &mut self,
        label: &str,
        selectors: &[T],
        from: UnixMs,
        until: UnixMs,
    ) -> Result<Vec<String>, QueryError> {
        let (start, end) = (seconds_text(from), seconds_text(until));
        let mut form = vec![("start", start.as_str()), ("end", end.as_str())];
        form.extend(selectors.iter().map(|selector| ("match[]", selector.as_ref())));
        let url = self.api_url(&format!("label/{label}/values"), &form);
        let body = self.fetch_body(|client| client.get(url.clone())).await?;
        let answer: QueryAnswer<'_, Vec<String>> = self.parse_answer(&body)?;
        answer.data.ok_or_else(|| self.malformed("it has no data"))
    }

    /// Runs a query for raw samples, and calls `consume` with its series.
    pub(crate) async fn query_samples<T>(
        &mut self,
        query: &str,
        at: UnixMs,
        consume: impl FnOnce(AnsweredMatrix<'_>) -> T,
    ) -> Result<T, QueryError> {
        let time = seconds_text(at);
        self.post_query("query", &[("query", query), ("time", &time)], consume).await
    }

    /// Runs an expression at each step from `from` to `until`, and calls `consume` with its series.
    pub(crate) async fn query_range<T>(
        &mut self,
        expression: &str,
        (from, until): (UnixMs, UnixMs),
        step: Duration,
        consume: impl FnOnce(AnsweredMatrix<'_>) -> T,
    ) -> Result<T, QueryError> {
        let (start, end) = (seconds_text(from), seconds_text(until));
        let step = step.as_secs_f64().to_string();
        // Otherwise VictoriaMetrics moves the steps to multiples of their length.
        let exact = ("nocache", "1");
        let form =
            [("query", expression), ("start", &start), ("end", &end), ("step", &step), exact];
        self.post_query("query_range", &form, consume).await
    }

    /// Posts a form to an endpoint that answers with a matrix.
    async fn post_query<T>(
        &mut self,
        endpoint: &str,
        form: &[(&str, &str)],
        consume: impl FnOnce(AnsweredMatrix<'_>) -> T,
    ) -> Result<T, QueryError> {
        let timeout = format!("{}ms", self.deadline.as_millis());
        let url = self.api_url(endpoint, &[]);
        let form: Vec<(&str, &str)> =
            form.iter().copied().chain([("timeout", timeout.as_str())]).collect();
        let encoded = encode_form(&form);
        let body = self
            .fetch_body(|client| {
                let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
                client.post(url.clone()).header(CONTENT_TYPE, form_type).body(encoded.clone())
            })
            .await?;
        let answer: QueryAnswer<'_, AnsweredMatrix<'_>> = self.parse_answer(&body)?;
        let matrix = answer.data.ok_or_else(|| self.malformed("it has no data"))?;
        if matrix.result_type.0 != "matrix" {
            return Err(self.malformed("it has no raw samples; is this a Prometheus?"));
        }
        Ok(consume(matrix))
    }

    /// Reads raw samples as a stream of chunks, and calls `add` with the series of each frame; returns the number of samples,
    /// or none if the server has no such interface. At an error, such as more samples than the budget, some series may
    /// have been added.
    pub(crate) async fn read_remotely(
        &mut self,
        selection: &ReadSelection<'_>,
        budget: u64,
        add: impl FnMut(&AnsweredMatrix<'_>),
    ) -> Result<Option<u64>, QueryError> {
        let body = compress_request(&encode_read_request(selection))
            .map_err(|error| self.malformed(&error.to_string()))?;
        let client = self.client.current().map_err(QueryError::Credentials)?.clone();
        let request = client
            .post(self.api_url("read", &[]))
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(CONTENT_ENCODING, "snappy")
            .header("x-prometheus-remote-read-version", "0.1.0")
            .body(body);
        let (url, deadline, next) = (self.shown.clone(), self.deadline, self.next_steps.timeout);
        let read = self.read_frames(request, selection, budget, add);
        match tokio::time::timeout(deadline, read).await {
            Ok(result) => result,
            Err(_) => Err(QueryError::Timeout { url, next, deadline }),
        }
    }

    async fn read_frames(
        &self,
        request: reqwest::RequestBuilder,
        selection: &ReadSelection<'_>,
        budget: u64,
        mut add: impl FnMut(&AnsweredMatrix<'_>),
    ) -> Result<Option<u64>, QueryError> {
        let mut response = request.send().await.map_err(|error| QueryError::Unreachable {
            url: self.shown.clone(),
            why: plain_error::network(&error),
        })?;
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let is_streamed = content_type.is_some_and(|it| it.starts_with(STREAMED));
        if response.status() != StatusCode::OK || !is_streamed {
            return Ok(None);
        }
        let (mut arrived, mut samples) = (Vec::new(), 0);
        let cut = |_| self.malformed("the connection ended in the middle of it");
        while let Some(part) = response.chunk().await.map_err(cut)? {
            arrived.extend_from_slice(&part);
            let limit = self.max_body.min(MAX_FRAME);
            while let Some(data) =
                take_frame(&mut arrived, limit).map_err(|why| self.malformed(why))?
            {
                samples += decode_frame(&data, selection, budget - samples, &mut add).map_err(
                    |error| match error {
                        FrameError::Malformed(why) => self.malformed(why),
                        FrameError::OverBudget => self.over_budget(budget),
                    },
                )?;
            }
        }
        if !arrived.is_empty() {
            return Err(self.malformed("it ends in the middle of a frame"));
        }
        Ok(Some(samples))
    }

    fn api_url(&self, endpoint: &str, parameters: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/api/v1/{endpoint}", self.base.path().trim_end_matches('/')));
        if !parameters.is_empty() {
            url.query_pairs_mut().extend_pairs(parameters);
        }
        url
    }

    /// Sends a request and reads its body under one deadline.
    async fn fetch_body(
        &mut self,
        request: impl FnOnce(&Client) -> reqwest::RequestBuilder,
    ) -> Result<Vec<u8>, QueryError> {
        let client = self.client.current().map_err(QueryError::Credentials)?.clone();
        let (url, deadline, next) = (self.shown.clone(), self.deadline, self.next_steps.timeout);
        match tokio::time::timeout(deadline, self.send_request(request(&client))).await {
            Ok(result) => result,
            Err(_) => Err(QueryError::Timeout { url, next, deadline }),
        }
    }

    async fn send_request(
        &mut self,
        request: reqwest::RequestBuilder,
    ) -> Result<Vec<u8>, QueryError> {
        let unreachable = |error: reqwest::Error| QueryError::Unreachable {
            url: self.shown.clone(),
            why: plain_error::network(&error),
        };
        let response = request.send().await.map_err(unreachable)?;
        self.skew_ms = clock_skew(response.headers(), SystemTime::now());
        let status = response.status().as_u16();
        let is_json = is_json(response.headers());
        let is_gzip = response.headers().get(CONTENT_ENCODING).is_some_and(|value| value == "gzip");
        let limit = if status == 200 { self.max_body } else { MAX_ERROR_BODY };
        let body = self.read_body(response, is_gzip, limit).await;
        if status == 200 {
            let body = body?;
            if !is_json {
                return Err(self.not_prometheus(describe_body(&body)));
            }
            return Ok(body);
        }
        let text = body.unwrap_or_default();
        Err(self.classify_status(status, is_json, &text))
    }

    /// Reads a body, decompressed, up to its limit.
    async fn read_body(
        &self,
        mut response: Response,
        is_gzip: bool,
        limit: usize,
    ) -> Result<Vec<u8>, QueryError> {
        let too_large = || QueryError::TooLarge {
            next: self.next_steps.size,
            url: self.shown.clone(),
            why: format!(": its answer is larger than the limit of {limit} bytes"),
        };
        let mut body = Vec::new();
        loop {
            let part = response
                .chunk()
                .await
                .map_err(|_| self.malformed("the connection ended in the middle of it"))?;
            let Some(part) = part else { break };
            if body.len() + part.len() > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&part);
        }
        if !is_gzip {
            return Ok(body);
        }
        let mut text = Vec::new();
        let read = GzDecoder::new(body.as_slice()).take(limit as u64 + 1).read_to_end(&mut text);
        read.map_err(|_| self.malformed("its gzip compression is damaged"))?;
        if text.len() > limit { Err(too_large()) } else { Ok(text) }
    }

    fn parse_answer<'a, T: Deserialize<'a>>(
        &self,
        body: &'a [u8],
    ) -> Result<QueryAnswer<'a, T>, QueryError> {
        let answer: QueryAnswer<'a, T> = serde_json::from_slice(body)
            .map_err(|error| self.malformed(&plain_error::json_without_place(&error)))?;
        if answer.status.0 != "success" {
            let why = answer.error.map_or_else(String::new, |text| text.0.into_owned());
            return Err(self.malformed(&format!("its status is an error: {}", clip_text(&why))));
        }
        let warning = answer.warnings.as_ref().and_then(|warnings| warnings.first());
        if answer.is_partial || warning.is_some() {
            let why = warning.map_or_else(String::new, |text| format!(": {}", clip_text(&text.0)));
            return Err(QueryError::Partial { url: self.shown.clone(), why });
        }
        Ok(answer)
    }

    /// What a status means that is not 200.
    fn classify_status(&self, status: u16, is_json: bool, body: &[u8]) -> QueryError {
        let url = self.shown.clone();
        let answer = serde_json::from_slice::<QueryAnswer<'_, serde_json::Value>>(body).ok();
        let is_api = is_json && answer.is_some();
        let message = answer.and_then(|answer| answer.error).map(|text| text.0.into_owned());
        // VictoriaMetrics' and proxies' own errors are plain text.
        let text = message.unwrap_or_else(|| {
            if looks_like_html(body) { String::new() } else { String::from_utf8_lossy(body).into() }
        });
        let text = clip_text(&text);
        let why = if text.is_empty() { String::new() } else { format!(": {text}") };
        let steps = self.next_steps;
        let next = steps.size;
        match status {
            401 | 403 => QueryError::Unauthorized { next: steps.access, url, status, why },
            413 => QueryError::TooLarge { next, url, why },
            400 | 422 | 503 if is_limit_message(&text) => QueryError::TooLarge { next, url, why },
            300..500 if !is_api && status != 429 => {
                self.not_prometheus(format!("HTTP status {status}{why}"))
            }
            504 => QueryError::TooLarge { next, url, why: ": it took too long".to_owned() },
            429 | 500..600 => QueryError::Overloaded { url, status, why },
            _ => QueryError::Refused { next: steps.refusal, url, status, why },
        }
    }

    fn not_prometheus(&self, what: String) -> QueryError {
        QueryError::NotPrometheus { url: self.shown.clone(), what }
    }

    pub(crate) fn malformed(&self, why: &str) -> QueryError {
        QueryError::Malformed { url: self.shown.clone(), why: why.to_owned() }
    }
}

fn parse_header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((name.parse().ok()?, value.parse().ok()?))
}

fn request_headers(tenant: Option<(HeaderName, HeaderValue)>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.extend(tenant);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let agent = HeaderValue::from_static(concat!("gaunt/", env!("CARGO_PKG_VERSION")));
    headers.insert(USER_AGENT, agent);
    headers
}

/// How far the time of an answer is ahead of `now`, in milliseconds.
fn clock_skew(headers: &HeaderMap, now: SystemTime) -> Option<i64> {
    let stated = parse_http_date(headers.get(DATE)?.to_str().ok()?)?;
    let now = now.duration_since(UNIX_EPOCH).ok()?.as_millis() as i64;
    // The date has no fraction of a second: it is half a second behind on average.
    Some(stated * 1_000 + 500 - now)
}

/// Seconds since 1970 of a date as HTTP servers write it: `Wed, 21 Oct 2026 07:28:00 GMT`.
fn parse_http_date(text: &str) -> Option<i64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let (_, text) = text.split_once(", ")?;
    let mut parts = text.split(' ');
    let day: i64 = parts.next()?.parse().ok()?;
    let name = parts.next().filter(|name| name.len() == 3)?;
    let month = MONTHS.find(name).filter(|at| at % 3 == 0)? as i64 / 3 + 1;
    let year = parts.next()?.parse().ok()?;
    let mut time = parts.next()?.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let midnight = UnixMs::from_date(year, month, day)?;
    Some(midnight.0 / 1_000 + hour * 3_600 + minute * 60 + second)
}

fn encode_form(pairs: &[(&str, &str)]) -> String {
    let mut url = Url::parse("http://form/").ok();
    let query = url.as_mut().and_then(|url| {
        url.query_pairs_mut().extend_pairs(pairs);
        url.query()
    });
    query.unwrap_or_default().to_owned()
}

fn seconds_text(at: UnixMs) -> String {
    format!("{:.3}", at.to_seconds())
}

/// Whether the content type is JSON: `application/json`, or `application/stream+json` for raw samples at
/// VictoriaMetrics.
fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
    matches!(media_type.trim(), "application/json" | "application/stream+json")
}

fn looks_like_html(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'<')
}

/// What a body is that is not JSON.
fn describe_body(body: &[u8]) -> String {
    if looks_like_html(body) {
        "a web page came instead of JSON".to_owned()
    } else {
        "the answer is not JSON".to_owned()
    }
}

/// Whether a server's message says that a query exceeds one of its limits.
fn is_limit_message(text: &str) -> bool {
    const LIMITS: [&str; 6] =
        ["too many", "exceed", "-search.max", "timed out", "timeout", "limit"];
    let text = text.to_ascii_lowercase();
    LIMITS.iter().any(|limit| text.contains(limit))
}

/// The first line of a server's message, as much of it as is shown.
fn clip_text(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().chars().take(MAX_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_of_the_server_is_compared_to_a_second() {
        let now = UNIX_EPOCH + Duration::from_mins(29_876_128);
        let skew =
            |date: &str| clock_skew(&[(DATE, date.parse().unwrap())].into_iter().collect(), now);
        assert_eq!(skew("Wed, 21 Oct 2026 07:28:00 GMT"), Some(500));
        assert_eq!(skew("Wed, 21 Oct 2026 07:27:00 GMT"), Some(-59_500));
        for invalid in ["", "now", "Wed, 21 Okt 2026 07:28:00 GMT", "Wed, 31 Feb 2026 07:28:00 GMT"]
        {
            assert_eq!(skew(invalid), None, "{invalid}");
        }
        assert_eq!(clock_skew(&HeaderMap::new(), now), None);
    }
}
