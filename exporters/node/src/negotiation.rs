//! Content negotiation: the format of the page and its compression, from the client's headers.

use gaunt_schema::{
    frame::{ClientState, HOLDS, MEDIA, VERSION},
    text::ExpositionFormat,
};
use hyper::{
    HeaderMap,
    header::{ACCEPT, ACCEPT_ENCODING, HeaderName},
};

/// One entry of an Accept header: media type, parameters, and weight.
struct AcceptEntry<'a> {
    value: &'a str,
    parameters: &'a str,
    quality: f32,
}

/// The client state, if the client accepts frames of our version and prefers nothing else; none for all others.
pub(crate) fn negotiate_frame(headers: &HeaderMap) -> Option<ClientState> {
    let (mut frame, mut other) = (0.0_f32, 0.0_f32);
    for entry in parse_accept_entries(headers, &ACCEPT) {
        let is_frame = entry.value == MEDIA;
        let readable = find_parameter(entry.parameters, "version")
            .is_none_or(|version| version.parse() == Ok(VERSION));
        match (is_frame, readable) {
            (true, true) => frame = frame.max(entry.quality),
            (true, false) => {}
            (false, _) => other = other.max(entry.quality),
        }
    }
    let client_state = headers.get(HOLDS).and_then(|value| value.to_str().ok());
    (frame > 0.0 && frame >= other)
        .then(|| client_state.map(ClientState::parse).unwrap_or_default())
}

/// The client's preferred format; text if it has no preference, because every client reads it.
pub fn negotiate_format(headers: &HeaderMap) -> ExpositionFormat {
    let (mut open, mut text, mut wildcard) = (None::<f32>, None::<f32>, None::<f32>);
    for entry in parse_accept_entries(headers, &ACCEPT) {
        let best = match entry.value {
            "application/openmetrics-text" if is_version_1(entry.parameters) => &mut open,
            "text/plain" => &mut text,
            "text/*" | "*/*" => &mut wildcard,
            _ => continue,
        };
        *best = Some(best.map_or(entry.quality, |quality| quality.max(entry.quality)));
    }
    let text = text.or(wildcard).unwrap_or(0.0);
    match open {
        Some(open) if open > 0.0 && open >= text => ExpositionFormat::OpenMetrics,
        _ => ExpositionFormat::Text,
    }
}

/// Whether the client accepts gzip.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let (mut gzip, mut wildcard) = (None, None);
    for entry in parse_accept_entries(headers, &ACCEPT_ENCODING) {
        match entry.value {
            "gzip" | "x-gzip" => gzip = Some(entry.quality),
            "*" => wildcard = Some(entry.quality),
            _ => {}
        }
    }
    gzip.or(wildcard).is_some_and(|quality| quality > 0.0)
}

/// Every entry of a header, over all its lines.
fn parse_accept_entries<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = AcceptEntry<'a>> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|entry| {
        let (value, parameters) = entry.split_once(';').unwrap_or((entry, ""));
        let quality = find_parameter(parameters, "q").and_then(|quality| quality.parse().ok());
        AcceptEntry { value: value.trim(), parameters, quality: quality.unwrap_or(1.0) }
    })
}

/// Without a version the newest is assumed.
fn is_version_1(parameters: &str) -> bool {
    find_parameter(parameters, "version").is_none_or(|version| version == "1.0.0")
}

fn find_parameter<'a>(parameters: &'a str, wanted: &str) -> Option<&'a str> {
    parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        (name.trim() == wanted).then(|| value.trim().trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn single_header(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn negotiated_format_has_highest_quality() {
        for (accept, format) in [
            ("", ExpositionFormat::Text),
            ("*/*", ExpositionFormat::Text),
            ("text/html, */*;q=0.8", ExpositionFormat::Text),
            ("application/openmetrics-text", ExpositionFormat::OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", ExpositionFormat::Text),
            ("application/openmetrics-text; version=1.0.0; q=0, */*", ExpositionFormat::Text),
            ("text/plain;q=0.9, application/openmetrics-text;q=0.5", ExpositionFormat::Text),
            ("application/openmetrics-text;q=0.5, */*;q=0.1", ExpositionFormat::OpenMetrics),
            // Prometheus 2.42 and 3.5.
            (
                "application/openmetrics-text;version=1.0.0,\
                 application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ExpositionFormat::OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                ExpositionFormat::OpenMetrics,
            ),
        ] {
            assert_eq!(super::negotiate_format(&single_header(ACCEPT, accept)), format, "{accept}");
        }
        assert_eq!(super::negotiate_format(&HeaderMap::new()), ExpositionFormat::Text);
    }

    #[test]
    fn frames_are_negotiated_only_for_our_version() {
        for (accept, gets_frame) in [
            ("", false),
            ("*/*", false),
            ("application/vnd.gaunt.frame", true),
            ("application/vnd.gaunt.frame;version=1, text/plain;q=0.5", true),
            ("application/vnd.gaunt.frame;version=2, text/plain;q=0.5", false),
            (
                "application/vnd.gaunt.frame;version=2, application/vnd.gaunt.frame;version=1;q=0.9, */*;q=0.1",
                true,
            ),
            ("application/vnd.gaunt.frame;version=1;q=0.5, text/plain", false),
            ("application/vnd.gaunt.frame;version=1;q=0", false),
        ] {
            assert_eq!(
                negotiate_frame(&single_header(ACCEPT, accept)).is_some(),
                gets_frame,
                "{accept}"
            );
        }
        let mut headers = single_header(ACCEPT, "application/vnd.gaunt.frame");
        headers.insert(HOLDS, HeaderValue::from_static("tick=1f"));
        assert_eq!(negotiate_frame(&headers), Some(ClientState { layout: None, tick: Some(31) }));
    }

    #[test]
    fn gzip_is_negotiated_only_on_request() {
        for (accept, accepted) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip;q=0, *", false),
            ("br, identity", false),
            ("", false),
        ] {
            assert_eq!(accepts_gzip(&single_header(ACCEPT_ENCODING, accept)), accepted, "{accept}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
