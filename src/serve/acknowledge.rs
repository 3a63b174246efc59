//! Acknowledgements over HTTP: acknowledges a finding or withdraws that, for clients with the token; each action is
//! logged.

use std::net::SocketAddr;

use axum::{
    Extension, Json,
    extract::{Query, RawPathParams, State},
    http::{HeaderMap, Method, Uri},
    response::{IntoResponse, Response},
};
use gaunt_schema::{SanitizedText, plain_error};
use hyper::body::Bytes;

use super::{
    api_responses::{denied_response, refusal_response, unavailable_response},
    api_state::ApiState,
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

/// Peer address of the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) SocketAddr);

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
    Query(parameters): Query<Vec<(String, String)>>,
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
}
