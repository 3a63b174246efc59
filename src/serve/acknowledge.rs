//! Acknowledgements over HTTP: acknowledges a finding or withdraws that, for clients with the role acknowledge; each
//! action is logged.

use axum::{
    Extension, Json,
    extract::{Query, RawPathParams, State},
    http::{HeaderMap, Method, Uri},
    response::{IntoResponse, Response},
};
use gaunt_schema::{SanitizedText, plain_error};
use hyper::{body::Bytes, header::IF_MATCH};

use super::{
    api_responses::{denied_response, refusal_response, unavailable_response},
    api_state::ApiState,
    audit_log::AuditEntry,
    pairing_endpoint,
    peer_address::PeerAddress,
    receive_service::is_receive_request,
};
use gaunt_api::{
    API, AccessRole, Answer, FindingAction, FindingCommand, Refusal,
    finding_action::{AcknowledgementBody, MAX_NAME, MAX_NOTE, SeenFindingError},
    peer_exchange::{PEER_ACTION_PATH, PEER_PATH, PEER_STATE_PATH},
};

/// The largest request body, in bytes: the longest note in the widest script, escaped.
pub(super) const MAX_BODY: usize = 8 << 10;

/// Path suffix of an acknowledgement.
const ACKNOWLEDGE: &str = "/acknowledge";

/// The role that a request of this method to this path needs; none if it neither reads nor writes anything known.
pub(super) fn needed_role(method: &Method, uri: &Uri) -> Option<AccessRole> {
    let below = uri.path().strip_prefix(API).unwrap_or_default();
    let is_post = method == Method::POST;
    if is_receive_request(method, uri) {
        return Some(AccessRole::Write);
    }
    match below.strip_prefix('/').unwrap_or_default() {
        PEER_ACTION_PATH if is_post => Some(AccessRole::Admin),
        _ if below == pairing_endpoint::PATH && is_post => Some(AccessRole::Write),
        _ if below.ends_with(ACKNOWLEDGE) && (is_post || method == Method::DELETE) => {
            Some(AccessRole::Acknowledge)
        }
        PEER_PATH | PEER_STATE_PATH => Some(AccessRole::Admin),
        _ => matches!(*method, Method::GET | Method::HEAD).then_some(AccessRole::Read),
    }
}

/// Acknowledges a finding, or withdraws that.
pub(super) async fn handle_action(
    State(ApiState { source, roles, audit, .. }): State<ApiState>,
    Extension(peer): Extension<PeerAddress>,
    method: Method,
    parts: RawPathParams,
    Query(parameters): Query<Vec<(String, String)>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let name = parts.iter().next().map(|(_, name)| name.to_owned()).unwrap_or_default();
    let finding = name.strip_suffix(ACKNOWLEDGE).unwrap_or(&name).to_owned();
    let mut entry = AuditEntry {
        action: "unknown",
        outcome: "done".to_owned(),
        finding: SanitizedText::new(&finding),
        by: SanitizedText::default(),
        note: SanitizedText::default(),
        client: SanitizedText::default(),
        peer: peer.0.to_string(),
    };
    let checked = roles.check_client(&headers, peer.address(), AccessRole::Acknowledge).await;
    let client = match checked {
        Ok(client) => client,
        Err(refusal) => {
            let (finding, peer) = (&entry.finding, &entry.peer);
            tracing::warn!(target: "gaunt::audit", %finding, peer, "action refused: {refusal}");
            if let Refusal::RoleTooLow { name, .. } = &refusal {
                entry.client = name.clone();
            }
            audit.write_entry(AuditEntry { outcome: outcome_name(&refusal), ..entry }).await;
            return denied_response(&refusal);
        }
    };
    // Nobody acts under the name of another user of the proxy.
    let user = client.is_user.then(|| client.name.clone());
    entry.client = client.name;
    let parsed = parse_action(&method, finding, &parameters, &body, user.as_ref());
    let action = match parsed.and_then(|action| with_seen_state(action, &headers)) {
        Ok(action) => action,
        Err(refusal) => return refusal_response(&refusal),
    };
    let what = describe_action(&action, &mut entry);
    let response = match source.send_action(action).await {
        Ok(Answer::Refused(refusal)) => {
            entry.outcome = outcome_name(&refusal);
            refusal_response(&refusal)
        }
        Ok(answer) => {
            let (finding, by, note) = (&entry.finding, entry.by.as_str(), entry.note.as_str());
            let (client, peer) = (entry.client.as_str(), &entry.peer);
            tracing::info!(target: "gaunt::audit", %finding, by, note, client, peer, "{what}");
            Json(answer).into_response()
        }
        Err(error) => {
            "unavailable".clone_into(&mut entry.outcome);
            unavailable_response(&error)
        }
    };
    audit.write_entry(entry).await;
    response
}

/// The action with the state of the finding that `If-Match` demands, if it is there.
fn with_seen_state(action: FindingAction, headers: &HeaderMap) -> Result<FindingAction, Refusal> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(action) };
    let seen = value.to_str().unwrap_or_default().parse();
    let seen =
        seen.map_err(|error: SeenFindingError| bad_parameter("if-match", &error.to_string()))?;
    Ok(FindingAction { seen: Some(seen), ..action })
}

fn bad_parameter(parameter: &str, why: &str) -> Refusal {
    Refusal::BadParameter { parameter: SanitizedText::new(parameter), why: SanitizedText::new(why) }
}

/// Fills in what the entry says of an action; returns the words for the program's log.
fn describe_action(action: &FindingAction, entry: &mut AuditEntry) -> &'static str {
    entry.by = action.by.clone();
    match &action.command {
        FindingCommand::Acknowledge { note } => {
            (entry.action, entry.note) = ("acknowledge", note.clone());
            "acknowledged"
        }
        FindingCommand::Accept { note } => {
            (entry.action, entry.note) = ("accept", note.clone());
            "accepted as baseline"
        }
        FindingCommand::Withdraw => {
            entry.action = "withdraw";
            "acknowledgement withdrawn"
        }
    }
}

/// The name of a refusal, as in its JSON.
fn outcome_name(refusal: &Refusal) -> String {
    let json = serde_json::to_value(refusal).unwrap_or_default();
    json.get("refused").and_then(|name| name.as_str()).unwrap_or("refused").to_owned()
}

fn parse_action(
    method: &Method,
    finding: String,
    parameters: &[(String, String)],
    body: &[u8],
    user: Option<&SanitizedText>,
) -> Result<FindingAction, Refusal> {
    let (note, is_acknowledgement) = if *method == Method::DELETE {
        let by = parameters.iter().find(|(name, _)| name == "by");
        let by = by.map(|(_, by)| by.clone()).unwrap_or_default();
        (AcknowledgementBody { by, ..AcknowledgementBody::default() }, false)
    } else {
        let note: AcknowledgementBody = serde_json::from_slice(body).map_err(|error| {
            let why = plain_error::json(&error);
            bad_parameter(
                "body",
                &format!("not of the form {{\"by\": \"NAME\", \"note\": \"TEXT\"}}: {why}"),
            )
        })?;
        (note, true)
    };
    let by = user.map_or(note.by.as_str(), SanitizedText::as_str).trim();
    if by.is_empty() {
        return Err(bad_parameter("by", "missing; give the user name"));
    }
    for (name, text, max_length) in [("by", by, MAX_NAME), ("note", &note.note, MAX_NOTE)] {
        let length = text.chars().count();
        if length > max_length {
            return Err(bad_parameter(
                name,
                &format!("{length} characters; at most {max_length} are allowed"),
            ));
        }
    }
    let note_text = SanitizedText::new(note.note.trim());
    let command = match (is_acknowledgement, note.accept) {
        (false, _) => FindingCommand::Withdraw,
        (true, true) => FindingCommand::Accept { note: note_text },
        (true, false) => FindingCommand::Acknowledge { note: note_text },
    };
    Ok(FindingAction { finding, by: SanitizedText::new(by), command, seen: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_post(body: &str) -> Result<FindingAction, String> {
        let parsed = parse_action(&Method::POST, "id".into(), &[], body.as_bytes(), None);
        parsed.map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn state_that_an_action_demands_is_that_of_if_match() {
        let action = parse_post(r#"{"by": "alice"}"#).unwrap();
        let with = |value: &str| {
            let headers = HeaderMap::from_iter([(IF_MATCH, value.parse().unwrap())]);
            with_seen_state(action.clone(), &headers).map_err(|refusal| refusal.to_string())
        };
        let seen = with("\"1700000000000-0\"").unwrap().seen.map(|seen| seen.to_string());
        assert_eq!(seen.as_deref(), Some("\"1700000000000-0\""));
        let error = with("*").unwrap_err();
        assert!(error.starts_with("parameter if-match: not of the form"), "{error}");
        assert_eq!(with_seen_state(action.clone(), &HeaderMap::new()).unwrap().seen, None);
    }

    #[test]
    fn acknowledgement_needs_a_user_and_may_have_a_note() {
        let action =
            parse_post(r#"{"by": " alice ", "note": "cable\u001b[31m is on its way"}"#).unwrap();
        assert_eq!((action.finding.as_str(), &*action.by), ("id", "alice"));
        let FindingCommand::Acknowledge { note } = action.command else { panic!("another deed") };
        assert_eq!(&*note, "cable\u{fffd}[31m is on its way", "safe for a terminal");
        assert!(parse_post(r#"{"by": "alice"}"#).is_ok());
        let action =
            parse_post(r#"{"by": "alice", "note": "new batch size", "accept": true}"#).unwrap();
        assert_eq!(action.command, FindingCommand::Accept { note: "new batch size".into() });
        for (body, expected) in [
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
            assert!(error.starts_with(expected), "{body}: {error}");
        }
        let long = format!(r#"{{"by": "a", "note": "{}"}}"#, "x".repeat(MAX_NOTE + 1));
        let error = parse_post(&long).unwrap_err();
        assert_eq!(error, "parameter note: 257 characters; at most 256 are allowed");
    }

    #[test]
    fn withdrawal_takes_its_user_from_the_query() {
        let by = [("by".to_owned(), "bob".to_owned())];
        let action = parse_action(&Method::DELETE, "id".into(), &by, b"", None).unwrap();
        assert_eq!((&*action.by, action.command), ("bob", FindingCommand::Withdraw));
        assert!(parse_action(&Method::DELETE, "id".into(), &[], b"", None).is_err());
    }

    #[test]
    fn user_of_the_proxy_acts_under_no_other_name() {
        let body = br#"{"by": "bob"}"#;
        let user = "alice".into();
        let action = parse_action(&Method::POST, "id".into(), &[], body, Some(&user)).unwrap();
        assert_eq!(action.by, "alice");
    }

    #[test]
    fn each_route_needs_its_role() {
        use AccessRole::{Acknowledge, Admin, Read, Write};
        let of = |method: Method, path: &str| needed_role(&method, &path.parse().unwrap());
        let (post, delete) = (Method::POST, Method::DELETE);
        for (method, path, needed) in [
            (Method::GET, "/metrics", Some(Read)),
            (Method::GET, "/api/gaunt/v1/findings/port_down/gpu001/mlx5_0/1", Some(Read)),
            (Method::GET, "/api/gaunt/v1/recording", Some(Read)),
            (Method::GET, "/api/gaunt/v1/peer", Some(Admin)),
            (Method::GET, "/api/gaunt/v1/peer/state", Some(Admin)),
            (post.clone(), "/api/gaunt/v1/peer/actions", Some(Admin)),
            (post.clone(), "/api/gaunt/v1/probe/meeting", Some(Write)),
            (
                post.clone(),
                "/api/gaunt/v1/findings/data_stale/gpu001/acknowledge",
                Some(Acknowledge),
            ),
            (delete, "/api/gaunt/v1/findings/data_stale/gpu001/acknowledge", Some(Acknowledge)),
            (post.clone(), "/api/v1/write", Some(Write)),
            (Method::GET, "/api/v1/write", Some(Read)),
            (post, "/api/gaunt/v1/overview", None),
            (Method::PUT, "/metrics", None),
        ] {
            assert_eq!(of(method.clone(), path), needed, "{method} {path}");
        }
    }
}
