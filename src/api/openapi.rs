//! The API description for programs: `config/openapi.json`, generated from the types of the answers and [`PATHS`].
//!
//! `GAUNT_BLESS=1 cargo test -p gaunt-api openapi` rewrites the file; review it before the commit. Descriptions are the
//! documentation comments of the types.

use std::{env, fs, path::Path};

use gaunt_schema::probe_pairing::{PairingReply, PairingRequest};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    AlertList, AnswerTable, Explanation, FabricMatrix, FindingList, GpuTime, HistoryAggregation,
    JobDetail, MetricHistory, NodeDetail, NodeList, Overview, PATHS, PeerAction, PeerReply,
    PeerStatus, ProbeMatrix, Refusal, Subject, TargetList, TelemetryCoverage, UsageReport,
    filter::{MAX_BYTES, MAX_ROWS},
    finding_action::{AcknowledgementBody, MAX_NAME},
    history_answer::MAX_POINTS,
};

const INVALID: &str = "The request is invalid.";
const BUSY: &str = "No answer is available now; retry later.";
const NOT_FOUND: &str = "Nothing has this name.";

/// The parameters of [`PATHS`].
const PARAMETERS: [(&str, &str); 12] = [
    (
        "at",
        "A past time: `-20m`, or milliseconds since the Unix epoch. Data of the last half an hour is \
         retained; what is not retained is absent.",
    ),
    ("filter", "The rows: `job=8812 and sm_active<30% sort power desc limit 20`."),
    ("sort", "Fields to sort by, `desc` after those in descending order: `power desc, node`."),
    ("limit", "The most rows; 1,000 by default."),
    ("offset", "Number of matching rows to skip."),
    ("columns", "Fields to show: `node,gpu,power`."),
    (
        "metric",
        "The field, by any of its names; `lost` without rows is the lost GPUs of the whole fleet.",
    ),
    ("subject", "The subject of the filter."),
    ("together", "Aggregation of many devices into one series."),
    ("points", "The most points; minimum and maximum of merged samples are kept."),
    (
        "span",
        "The time that is shown, up to `90d`: `6h`, `7d`. Without it, all that is in memory; what is longer is read from the \
         store of `[store]`, if there is one.",
    ),
    (
        "last",
        "The period: `15m` (the default), `90s` or `1h`. An hour is retained; `from` is the start of the \
         counted time.",
    ),
];

#[test]
fn openapi_json_is_generated_from_the_types_and_paths() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/openapi.json");
    let generated = format!("{:#}\n", generate_openapi());
    if env::var_os("GAUNT_BLESS").is_some() {
        fs::write(&file, &generated).unwrap();
    }
    let differs = "differs from the types; GAUNT_BLESS=1 rewrites it";
    assert!(fs::read_to_string(&file).unwrap() == generated, "{} {differs}", file.display());
}

fn generate_openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.definitions_path = "/components/schemas".into();
    });
    let mut answers = settings.clone().for_serialize().into_generator();
    let mut bodies = settings.for_deserialize().into_generator();
    let mut paths = Map::new();
    for (path, parameters, summary) in PATHS {
        let item = json!({ "get": describe_question(&mut answers, path, parameters, summary) });
        paths.insert(format!("/{path}"), item);
    }
    paths.extend(describe_other_paths(&mut answers, &mut bodies));
    paths.extend(describe_peer_paths(&mut answers, &mut bodies));
    let mut schemas = answers.take_definitions(true);
    for (name, schema) in bodies.take_definitions(true) {
        let known = schemas.insert(name.clone(), schema.clone());
        assert!(known.is_none_or(|known| known == schema), "{name} differs as request and answer");
    }
    schemas.insert("StreamLine".to_owned(), stream_line_schema());
    schemas.insert("JsonDiff".to_owned(), json_diff_schema());
    schemas.values_mut().for_each(tidy_schema);
    // The server adds a message for people to each refusal.
    for variant in schemas["Refusal"]["oneOf"].as_array_mut().into_iter().flatten() {
        variant["properties"]["message"] = json!({ "type": "string" });
        variant["required"].as_array_mut().unwrap().push(json!("message"));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "gaunt",
            "version": "1",
            "description": "The API of an aggregator. Questions are read with GET and HEAD. The only \
                actions are to acknowledge a finding, to withdraw that, and the requests of probes; they \
                need the token. The Host header must name the aggregator.",
        },
        "servers": [{ "url": super::API }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token with the role that the request needs: that of `serve.token_file`, or one of `serve.tokens`. Without any, nobody can act.",
            } },
        },
    })
}

/// The operation of one path of [`PATHS`].
fn describe_question(
    answers: &mut SchemaGenerator,
    path: &str,
    parameters: &[&str],
    summary: &str,
) -> Value {
    let name = path.split_once('{').map(|(_, name)| name.trim_end_matches('}'));
    let mut listed: Vec<Value> = name.into_iter().map(|n| path_parameter(answers, n)).collect();
    listed.extend(parameters.iter().map(|name| query_parameter(answers, name, path)));
    let schema = answer_schema(answers, path);
    let mut responses = json!({
        "200": json_response(summary, &schema),
        "400": refusal_response(answers, INVALID),
        "503": text_response(BUSY),
    });
    if name.is_some() {
        responses["404"] = refusal_response(answers, NOT_FOUND);
    } else if parameters.contains(&"at") {
        responses["404"] = refusal_response(answers, "No data is retained for this time.");
    }
    let id = path.replace('/', "_").replace(['{', '}'], "");
    json!({ "summary": summary, "operationId": id, "parameters": listed, "responses": responses })
}

/// The answer of one path of [`PATHS`].
fn answer_schema(answers: &mut SchemaGenerator, path: &str) -> Value {
    match path {
        "overview" => schema_of::<Overview>(answers),
        "nodes" => schema_of::<NodeList>(answers),
        "nodes/{node}" => schema_of::<NodeDetail>(answers),
        "gpus" | "jobs" | "ports" | "table/{subject}" => schema_of::<AnswerTable>(answers),
        "jobs/{job}" => schema_of::<JobDetail>(answers),
        "fabric" => schema_of::<FabricMatrix>(answers),
        "findings" | "closed" => schema_of::<FindingList>(answers),
        "findings/{finding}" => schema_of::<Explanation>(answers),
        "gpu_time" => schema_of::<GpuTime>(answers),
        "targets" => schema_of::<TargetList>(answers),
        "probe" => schema_of::<ProbeMatrix>(answers),
        "history" => schema_of::<MetricHistory>(answers),
        "usage" => schema_of::<UsageReport>(answers),
        "alerts" => schema_of::<AlertList>(answers),
        "coverage" => schema_of::<TelemetryCoverage>(answers),
        _ => panic!("{path} has no answer type"),
    }
}

/// Paths that are not questions.
fn describe_other_paths(
    answers: &mut SchemaGenerator,
    bodies: &mut SchemaGenerator,
) -> Map<String, Value> {
    let body = |schema: Value| {
        let content = json!({ "application/json": { "schema": schema } });
        json!({ "required": true, "content": content })
    };
    let by = json!({
        "name": "by", "in": "query", "required": true, "description": "User name.",
        "schema": { "type": "string", "minLength": 1, "maxLength": MAX_NAME },
    });
    let seen = json!({
        "name": "If-Match", "in": "header", "required": false,
        "description": "\"OPENED-ACTED\": when the finding opened, and when it was acknowledged last, or that \
            withdrawn or lapsed (0 if never), in milliseconds since 1970. In another state the action is refused.",
        "schema": { "type": "string", "pattern": "^\"\\d+-\\d+\"$" },
    });
    let finding = path_parameter(answers, "finding");
    let explanation = schema_of::<Explanation>(answers);
    let mut changed = action_responses(answers, &explanation);
    changed["404"] = refusal_response(answers, "There is no such finding.");
    let conflict = "It is closed, already acknowledged, not acknowledged, or without a baseline.";
    changed["409"] = refusal_response(answers, conflict);
    changed["412"] = refusal_response(answers, "It is not in the state of If-Match.");
    let reply = schema_of::<PairingReply>(answers);
    let recording = json!({ "type": "string", "format": "binary" });
    let other = json!({
        "/findings/{finding}/acknowledge": {
            "post": {
                "summary": "Acknowledges an open finding.",
                "operationId": "acknowledge",
                "security": [{ "token": [] }],
                "parameters": [finding, seen],
                "requestBody": body(schema_of::<AcknowledgementBody>(bodies)),
                "responses": changed,
            },
            "delete": {
                "summary": "Withdraws an acknowledgement.",
                "operationId": "withdraw",
                "security": [{ "token": [] }],
                "parameters": [finding, by, seen],
                "responses": changed,
            },
        },
        "/probe/meeting": { "post": {
            "summary": "Handles a request of a probe to measure with another node.",
            "operationId": "meet",
            "security": [{ "token": [] }],
            "requestBody": body(schema_of::<PairingRequest>(bodies)),
            "responses": action_responses(answers, &reply),
        } },
        "/stream": { "get": describe_stream(answers) },
        "/recording": { "get": {
            "summary": "All deliveries from now on, as a recording of one segment without an end.",
            "description": "The bytes of a segment as `gaunt record` writes them: a header, then \
                checksummed blocks, at least one per second. The first block holds the current targets, \
                topology and jobs. A client that is too slow is disconnected.",
            "operationId": "recording",
            "responses": {
                "200": {
                    "description": "A segment without an end.",
                    "content": { "application/vnd.gaunt.recording": { "schema": recording } },
                },
                "503": text_response("The limit of followers is reached."),
            },
        } },
        "/openapi.json": { "get": {
            "summary": "This description.",
            "operationId": "openapi",
            "responses": { "200": json_response("OpenAPI 3.1.", &json!({ "type": "object" })) },
        } },
    });
    serde_json::from_value(other).unwrap()
}

/// Paths for the other aggregators of the cluster.
fn describe_peer_paths(
    answers: &mut SchemaGenerator,
    bodies: &mut SchemaGenerator,
) -> Map<String, Value> {
    let action = json!({ "application/json": { "schema": schema_of::<PeerAction>(bodies) } });
    let action_body = json!({ "required": true, "content": action });
    let peer_status = schema_of::<PeerStatus>(answers);
    let peer_reply = schema_of::<PeerReply>(answers);
    let mut state_responses = action_responses(answers, &json!({}));
    state_responses["200"] = json!({
        "description": "Findings, acknowledgements and baselines.",
        "content": { "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } },
    });
    let other = json!({
        "/peer": { "get": {
            "summary": "The status of this aggregator for its peers.",
            "operationId": "peer_status",
            "security": [{ "token": [] }],
            "responses": action_responses(answers, &peer_status),
        } },
        "/peer/state": { "get": {
            "summary": "Findings, acknowledgements and baselines for a peer that starts.",
            "description": "JSON packed by zstd, for an aggregator of the same version.",
            "operationId": "peer_state",
            "security": [{ "token": [] }],
            "responses": state_responses,
        } },
        "/peer/actions": { "post": {
            "summary": "Passes on an action of a user on a finding.",
            "operationId": "peer_action",
            "security": [{ "token": [] }],
            "requestBody": action_body,
            "responses": action_responses(answers, &peer_reply),
        } },
    });
    serde_json::from_value(other).unwrap()
}

fn describe_stream(answers: &mut SchemaGenerator) -> Value {
    let mut names: Vec<&str> = Vec::new();
    for name in PATHS.iter().flat_map(|(_, parameters, _)| *parameters) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let mut parameters = vec![
        json!({
            "name": "ask", "in": "query", "required": true, "schema": { "type": "string" },
            "description": "The question, as its path below the API base: `overview`, `nodes/gpu003`. \
                Its parameters are parameters of the stream.",
        }),
        json!({
            "name": "from", "in": "query", "schema": { "type": "string" },
            "description": "Stream and number of the last line received, as `STREAM-NUMBER`: only later \
                changes are sent, if they are retained.",
        }),
    ];
    parameters.extend(names.iter().map(|name| query_parameter(answers, name, "stream")));
    let line = json!({ "$ref": "#/components/schemas/StreamLine" });
    json!({
        "summary": "An answer, and then its changes, line by line.",
        "operationId": "stream",
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "At least one line every 5 seconds.",
                "content": { "application/x-ndjson": { "schema": line } },
            },
            "400": refusal_response(answers, INVALID),
            "404": refusal_response(answers, NOT_FOUND),
            "503": text_response(BUSY),
        },
    })
}

fn path_parameter(answers: &mut SchemaGenerator, name: &str) -> Value {
    let schema = match name {
        "subject" => schema_of::<Subject>(answers),
        _ => json!({ "type": "string" }),
    };
    let mut parameter = json!({ "name": name, "in": "path", "required": true, "schema": schema });
    if name == "finding" {
        parameter["description"] = json!("Id of the finding; its slashes may be escaped or not.");
    }
    parameter
}

fn query_parameter(answers: &mut SchemaGenerator, name: &str, path: &str) -> Value {
    let integer =
        |least: u32, most: u32| json!({ "type": "integer", "minimum": least, "maximum": most });
    let schema = match name {
        "filter" => json!({ "type": "string", "maxLength": MAX_BYTES }),
        "limit" => integer(1, MAX_ROWS),
        "offset" => integer(0, MAX_ROWS),
        "points" => integer(1, MAX_POINTS),
        "subject" => json!({ "type": "string", "enum": ["gpus", "nodes", "ports"] }),
        "together" => schema_of::<HistoryAggregation>(answers),
        _ => json!({ "type": "string" }),
    };
    let known = PARAMETERS.iter().find(|(known, _)| *known == name);
    let (_, description) = known.unwrap_or_else(|| panic!("parameter {name} has no description"));
    let mut parameter =
        json!({ "name": name, "in": "query", "description": description, "schema": schema });
    if (path, name) == ("history", "metric") {
        parameter["required"] = json!(true);
    }
    parameter
}

fn action_responses(answers: &mut SchemaGenerator, schema: &Value) -> Value {
    json!({
        "200": json_response("The state after the action.", schema),
        "400": refusal_response(answers, INVALID),
        "401": refusal_response(answers, "The token is missing or wrong."),
        "403": refusal_response(answers, "The aggregator has no token, or the client lacks the role."),
        "413": text_response("The body is too large, or the request does not state its length."),
        "503": text_response(BUSY),
    })
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

fn json_response(description: &str, schema: &Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn refusal_response(answers: &mut SchemaGenerator, description: &str) -> Value {
    json_response(description, &schema_of::<Refusal>(answers))
}

fn text_response(description: &str) -> Value {
    let text = json!({ "type": "string" });
    json!({ "description": description, "content": { "text/plain": { "schema": text } } })
}

/// A line of a stream. The server writes it without a type, because the answer in it is JSON already.
fn stream_line_schema() -> Value {
    let line = |description: &str, members: Value| {
        let required: Vec<&String> = members.as_object().unwrap().keys().collect();
        json!({
            "type": "object", "description": description, "required": required, "properties": members,
        })
    };
    let number = json!({ "type": "integer", "minimum": 0 });
    let stream = json!({ "type": "string" });
    let whole = json!({ "type": "object" });
    let refused = json!({ "$ref": "#/components/schemas/Refusal" });
    let change = json!({ "$ref": "#/components/schemas/JsonDiff" });
    let alive = json!({ "const": true });
    json!({ "description": "One line of a stream.", "oneOf": [
        line("The whole answer.", json!({ "stream": stream, "number": number, "whole": whole })),
        line(
            "Why there is no answer now.",
            json!({ "stream": stream, "number": number, "refused": refused }),
        ),
        line("The change since the previous number.", json!({ "number": number, "change": change })),
        line("Heartbeat: nothing changed.", json!({ "number": number, "alive": alive })),
    ] })
}

/// A change of an answer, see [`super::json_diff`].
fn json_diff_schema() -> Value {
    let pairs = json!({ "type": ["object", "array"] });
    json!({
        "type": "object",
        "description": "`whole` replaces. In an object `to` has members that are replaced, `in` those \
            that are changed inside, `gone` those that are removed. In an array `to` and `in` are pairs \
            of index and value or change, and `len` is its new length. In a string `put` are pairs of \
            offset and text, counted in characters.",
        "properties": {
            "whole": {},
            "to": pairs,
            "in": pairs,
            "gone": { "type": "array", "items": { "type": "string" } },
            "len": { "type": "integer", "minimum": 0 },
            "put": { "type": "array", "items": { "type": "array" } },
        },
    })
}

/// Makes objects strict, lists the values of an enum, and removes line breaks and links from descriptions.
fn tidy_schema(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                let plain = text.replace("[`", "`").replace("`]", "`");
                *text = plain.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            // A default is what an older answer without the member means.
            members.remove("default");
            members.values_mut().for_each(tidy_schema);
            merge_constants(members);
            if members.contains_key("properties") {
                assert!(
                    !members.contains_key("$ref"),
                    "a strict object cannot extend another: {members:?}"
                );
                members.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_schema),
        _ => {}
    }
}

/// Replaces alternatives of one constant each by an `enum`, as generators of clients expect it.
fn merge_constants(members: &mut Map<String, Value>) {
    let Some(variants) = members.get("oneOf").and_then(Value::as_array) else { return };
    let Some(words) = variants.iter().map(|v| v.get("const")).collect::<Option<Vec<_>>>() else {
        return;
    };
    let line =
        |v: &Value| Some(format!("\n- `{}`: {}", v["const"].as_str()?, v["description"].as_str()?));
    let lines: Option<String> = variants.iter().map(line).collect();
    let text = members.get("description").and_then(Value::as_str).unwrap_or_default();
    let text = format!("{text}\n{}", lines.unwrap_or_default());
    let words = json!(words);
    members.remove("oneOf");
    members.extend([
        ("type".to_owned(), json!("string")),
        ("enum".to_owned(), words),
        ("description".to_owned(), json!(text.trim())),
    ]);
}
