//! Acknowledgements over HTTP: acknowledges a finding or withdraws that, for clients with the token; each action is
//! logged.

use std::{
    io::Read as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    Extension, Json,
    extract::{Query, RawPathParams, State},
    http::{
        HeaderMap, Method, Uri,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use gaunt_schema::{SanitizedText, plain_error};
use hyper::body::Bytes;
use subtle::ConstantTimeEq as _;
use tokio::task::spawn_blocking;

use super::{
    json_api::{ApiParameters, ApiState, refusal_response, unavailable_response},
    pairing_endpoint,
};
use gaunt_api::{
    API, Answer, FindingAction, FindingCommand, Refusal,
    finding_action::{AcknowledgementBody, MAX_NAME, MAX_NOTE},
};

/// The largest request body, in bytes: the longest note in the widest script, escaped.
pub(super) const MAX_BODY: usize = 8 << 10;

/// Path suffix of an acknowledgement.
const ACKNOWLEDGE: &str = "/acknowledge";

/// The shortest token that is accepted: 16 random characters cannot be guessed over a network.
const SHORTEST_TOKEN: usize = 16;

/// The largest token file, in bytes.
const LARGEST_TOKEN: u64 = 4_096;

/// Path of the token file; without one all actions are refused.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteToken(Option<Arc<Path>>);

/// Why the token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WriteTokenError {
    /// The file cannot be read.
    #[error("cannot read the token in {}: {error}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file holds no valid token.
    #[error(
        "{} has no token of at least {SHORTEST_TOKEN} characters; create one with `openssl rand \
         -hex 24`",
        .0.display()
    )]
    Short(PathBuf),
}

/// Peer address of the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) SocketAddr);

impl WriteToken {
    /// Checks that the file holds a token that is long enough. It is read again at each action.
    pub(super) fn from_file(path: &Path) -> Result<Self, WriteTokenError> {
        read_token(path)?;
        Ok(Self(Some(path.into())))
    }

    /// Whether the request headers carry the token.
    pub(super) async fn check_headers(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let path = self.0.clone().ok_or(Refusal::WritingOff)?;
        let told = headers.get(AUTHORIZATION).and_then(|told| told.to_str().ok());
        let told = told.and_then(|told| {
            let (scheme, token) = told.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        });
        let told = told.filter(|told| !told.is_empty()).ok_or(Refusal::NoToken)?;
        let token = spawn_blocking(move || read_token(&path)).await;
        let token = match token {
            Ok(Ok(token)) => token,
            Ok(Err(error)) => {
                tracing::error!(%error, "write requests are refused until this is fixed");
                return Err(Refusal::WritingOff);
            }
            Err(_) => return Err(Refusal::WritingOff),
        };
        // Constant-time comparison: a token that is nearly right takes as long as one that is entirely wrong.
        if bool::from(token.as_bytes().ct_eq(told.as_bytes())) {
            return Ok(());
        }
        Err(Refusal::WrongToken)
    }
}

fn read_token(path: &Path) -> Result<String, WriteTokenError> {
    let failed = |error| WriteTokenError::Read { path: path.to_path_buf(), error };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(LARGEST_TOKEN).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim();
    if token.len() < SHORTEST_TOKEN || token.contains(char::is_whitespace) {
        return Err(WriteTokenError::Short(path.to_path_buf()));
    }
    Ok(token.to_owned())
}

/// Whether a request of this method to this path is a write.
pub(super) fn is_write_request(method: &Method, uri: &Uri) -> bool {
    let acknowledges = uri.path().ends_with(ACKNOWLEDGE);
    let meets = uri.path().strip_prefix(API) == Some(pairing_endpoint::PATH);
    (acknowledges && matches!(*method, Method::POST | Method::DELETE))
        || (meets && method == Method::POST)
}

/// Acknowledges a finding, or withdraws that.
pub(super) async fn handle_action(
    State(ApiState { source, token, .. }): State<ApiState>,
    peer: Option<Extension<PeerAddress>>,
    method: Method,
    parts: RawPathParams,
    Query(parameters): ApiParameters,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let peer = peer.map_or_else(String::new, |Extension(PeerAddress(address))| address.to_string());
    let name = parts.iter().next().map(|(_, name)| name.to_owned()).unwrap_or_default();
    let finding = name.strip_suffix(ACKNOWLEDGE).unwrap_or(&name).to_owned();
    if let Err(refusal) = token.check_headers(&headers).await {
        let finding = SanitizedText::new(&finding);
        tracing::warn!(target: "gaunt::audit", %finding, peer, "action refused: {refusal}");
        return denied_response(&refusal);
    }
    let act = match parse_action(&method, finding, &parameters, &body) {
        Ok(act) => act,
        Err(refusal) => return refusal_response(&refusal),
    };
    let what = match act.command {
        FindingCommand::Acknowledge { .. } => "acknowledged",
        FindingCommand::Accept { .. } => "accepted as baseline",
        FindingCommand::Withdraw => "acknowledgement withdrawn",
    };
    let (finding, by) = (SanitizedText::new(&act.finding), act.by.clone());
    let note = match &act.command {
        FindingCommand::Acknowledge { note } | FindingCommand::Accept { note } => note.clone(),
        FindingCommand::Withdraw => SanitizedText::default(),
    };
    match source.send_action(act).await {
        Ok(Answer::Refused(refusal)) => refusal_response(&refusal),
        Ok(answer) => {
            let (by, note) = (by.as_str(), note.as_str());
            tracing::info!(target: "gaunt::audit", %finding, by, note, peer, "{what}");
            Json(answer).into_response()
        }
        Err(error) => unavailable_response(&error),
    }
}

/// Response to an unauthorized request, with the authentication scheme.
pub(super) fn denied_response(refusal: &Refusal) -> Response {
    let mut response = refusal_response(refusal);
    if matches!(refusal, Refusal::NoToken | Refusal::WrongToken) {
        let how = axum::http::HeaderValue::from_static("Bearer realm=\"gaunt\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, how);
    }
    response
}

fn parse_action(
    method: &Method,
    finding: String,
    parameters: &[(String, String)],
    body: &[u8],
) -> Result<FindingAction, Refusal> {
    let bad = |parameter: &str, why: &str| Refusal::BadParameter {
        parameter: SanitizedText::new(parameter),
        why: SanitizedText::new(why),
    };
    let (note, deed) = if *method == Method::DELETE {
        let by = parameters.iter().find(|(name, _)| name == "by");
        let by = by.map(|(_, by)| by.clone()).unwrap_or_default();
        (AcknowledgementBody { by, ..AcknowledgementBody::default() }, false)
    } else {
        let note: AcknowledgementBody = serde_json::from_slice(body).map_err(|error| {
            let why = plain_error::json(&error);
            bad("body", &format!("not of the form {{\"by\": \"NAME\", \"note\": \"TEXT\"}}: {why}"))
        })?;
        (note, true)
    };
    let by = note.by.trim();
    if by.is_empty() {
        return Err(bad("by", "missing; give the user name"));
    }
    for (name, text, most) in [("by", by, MAX_NAME), ("note", &note.note, MAX_NOTE)] {
        let length = text.chars().count();
        if length > most {
            return Err(bad(name, &format!("{length} characters; at most {most} are allowed")));
        }
    }
    let said = SanitizedText::new(note.note.trim());
    let deed = match (deed, note.accept) {
        (false, _) => FindingCommand::Withdraw,
        (true, true) => FindingCommand::Accept { note: said },
        (true, false) => FindingCommand::Acknowledge { note: said },
    };
    Ok(FindingAction { finding, by: SanitizedText::new(by), command: deed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_post(body: &str) -> Result<FindingAction, String> {
        let read = parse_action(&Method::POST, "id".into(), &[], body.as_bytes());
        read.map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn an_act_says_who_and_may_say_why() {
        let act =
            parse_post(r#"{"by": " alice ", "note": "cable\u001b[31m is on its way"}"#).unwrap();
        assert_eq!((act.finding.as_str(), &*act.by), ("id", "alice"));
        let FindingCommand::Acknowledge { note } = act.command else { panic!("another deed") };
        assert_eq!(&*note, "cable\u{fffd}[31m is on its way", "safe for a terminal");
        assert!(parse_post(r#"{"by": "alice"}"#).is_ok());
        let act =
            parse_post(r#"{"by": "alice", "note": "new batch size", "accept": true}"#).unwrap();
        assert_eq!(act.command, FindingCommand::Accept { note: "new batch size".into() });
        for (body, said) in [
            (
                "",
                "parameter body: not of the form {\"by\": \"NAME\", \"note\": \"TEXT\"}: line \
                 1, column 0: incomplete JSON",
            ),
            (
                "{}",
                "parameter body: not of the form {\"by\": \"NAME\", \"note\": \"TEXT\"}: line \
                 1, column 2: missing field \"by\"",
            ),
            (r#"{"by": "  "}"#, "parameter by: missing; give the user name"),
            (r#"{"by": "a", "until": 3}"#, "parameter body: not of the form"),
        ] {
            let error = parse_post(body).unwrap_err();
            assert!(error.starts_with(said), "{body}: {error}");
        }
        let long = format!(r#"{{"by": "a", "note": "{}"}}"#, "x".repeat(MAX_NOTE + 1));
        let error = parse_post(&long).unwrap_err();
        assert_eq!(error, "parameter note: 257 characters; at most 256 are allowed");
    }

    #[test]
    fn who_withdraws_says_so_in_the_address() {
        let by = [("by".to_owned(), "bob".to_owned())];
        let act = parse_action(&Method::DELETE, "id".into(), &by, b"").unwrap();
        assert_eq!((&*act.by, act.command), ("bob", FindingCommand::Withdraw));
        assert!(parse_action(&Method::DELETE, "id".into(), &[], b"").is_err());
    }

    #[tokio::test]
    async fn only_the_token_opens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(matches!(WriteToken::from_file(&path), Err(WriteTokenError::Read { .. })));
        std::fs::write(&path, "short\n").unwrap();
        assert!(matches!(WriteToken::from_file(&path), Err(WriteTokenError::Short(_))));
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let token = WriteToken::from_file(&path).unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(WriteToken::default().check_headers(&headers).await, Err(Refusal::WritingOff));
        assert_eq!(token.check_headers(&headers).await, Err(Refusal::NoToken));
        for (told, expected) in [
            ("Bearer 0123456789abcdef", Ok(())),
            ("bearer  0123456789abcdef ", Ok(())),
            ("Bearer 0123456789abcdeg", Err(Refusal::WrongToken)),
            ("Bearer 0123456789abcde", Err(Refusal::WrongToken)),
            ("Bearer ", Err(Refusal::NoToken)),
            ("Basic 0123456789abcdef", Err(Refusal::NoToken)),
        ] {
            headers.insert(AUTHORIZATION, told.parse().unwrap());
            assert_eq!(token.check_headers(&headers).await, expected, "{told}");
        }
        std::fs::write(&path, "another-token-now").unwrap();
        headers.insert(AUTHORIZATION, "Bearer another-token-now".parse().unwrap());
        assert_eq!(token.check_headers(&headers).await, Ok(()), "it is read again");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(token.check_headers(&headers).await, Err(Refusal::WritingOff));
    }
}
