//! Tests of targets from DNS, with a small server that responds with real messages over UDP.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Mutex,
};

use hickory_resolver::proto::{
    op::{Message, MessageType, ResponseCode},
    rr::{Name, RData, Record as Row, RecordType, rdata},
    serialize::binary::{BinDecodable as _, BinEncodable as _},
};
use tokio::net::UdpSocket;

use super::*;

/// The server's records by name.
type DnsZone = Arc<Mutex<Vec<(&'static str, RData)>>>;

async fn serve_dns(zone: DnsZone) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 1500];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            let question = Message::from_bytes(&buffer[..length]).unwrap();
            let reply = answer_query(&question, &zone.lock().unwrap());
            drop(socket.send_to(&reply.to_bytes().unwrap(), peer).await);
        }
    });
    address
}

fn answer_query(question: &Message, zone: &[(&'static str, RData)]) -> Message {
    let mut reply = question.clone();
    reply.metadata.message_type = MessageType::Response;
    reply.metadata.recursion_available = true;
    let query = question.queries.first().unwrap().clone();
    let has_name =
        |name: &&(&'static str, RData)| Name::from_ascii(name.0).unwrap() == *query.name();
    if zone.iter().filter(has_name).count() == 0 {
        reply.metadata.response_code = ResponseCode::NXDomain;
    }
    for (_, data) in zone.iter().filter(has_name) {
        if data.record_type() == query.query_type() {
            reply.answers.push(Row::from_rdata(query.name().clone(), 30, data.clone()));
        }
    }
    reply
}

/// A DNS name may hold any bytes, whatever the rules for host names are.
fn srv_record(port: u16, host: &str) -> RData {
    let labels = host.trim_end_matches('.').split('.').map(str::as_bytes);
    RData::SRV(rdata::SRV::new(0, 0, port, Name::from_labels(labels).unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_records_become_targets() {
    let zone: DnsZone = Arc::new(Mutex::new(vec![
        ("_gaunt._tcp.gpu.test.", srv_record(9770, "gpu2.test.")),
        ("_gaunt._tcp.gpu.test.", srv_record(9770, "gpu1.test.")),
        ("_gaunt._tcp.gpu.test.", srv_record(9100, "evil host.test.")),
        ("nodes.test.", RData::A(rdata::A(Ipv4Addr::new(10, 255, 0, 7)))),
        ("nodes.test.", RData::AAAA(rdata::AAAA(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7)))),
    ]));
    let server = serve_dns(zone.clone()).await;
    let source = |name: &str, record| {
        let refresh = Duration::from_millis(100);
        DiscoverySource::Dns(DnsDiscovery {
            name: name.to_owned(),
            record,
            refresh,
            server: Some(server),
        })
    };
    let sources = vec![
        source("_gaunt._tcp.gpu.test.", DnsRecordType::Srv),
        source("nodes.test.", DnsRecordType::A),
        source("nodes.test.", DnsRecordType::Aaaa),
        source("nobody.test.", DnsRecordType::A),
    ];
    let defaults = EndpointDefaults { port: 9400, ..EndpointDefaults::default() };
    let group = TargetGroup { sources, defaults, ..TargetGroup::default() };
    let (inbox, mut deliveries) = mpsc::channel(64);
    let _manager = spawn_manager(
        ScrapePlan { options: test_options(), groups: vec![group] },
        inbox,
        test_clock(),
    );
    let (mut addresses, mut sources) = (Vec::new(), Vec::new());
    let mut until = async |condition: &dyn Fn(&[String], &[gaunt_schema::TargetSource]) -> bool| {
        let waiting = async {
            while let Some(delivery) = deliveries.recv().await {
                match delivery {
                    Delivery::Targets(targets) => {
                        addresses =
                            targets.iter().map(|target| target.address.to_string()).collect();
                    }
                    Delivery::Sources(statuses) => sources = statuses,
                    _ => {}
                }
                if condition(&addresses, &sources) {
                    return;
                }
            }
        };
        assert!(timeout(PATIENCE, waiting).await.is_ok(), "{addresses:?} {sources:?}");
    };
    let expected = ["gpu1.test:9770", "gpu2.test:9770", "10.255.0.7:9400", "[fd00::7]:9400"];
    until(&|addresses, sources| {
        addresses == expected
            && sources.len() == 4
            && sources[3].trouble.is_some()
            && sources[0].trouble.is_some()
    })
    .await;
    // A service with a new record, and one that is removed from DNS.
    zone.lock().unwrap().retain(|(name, _)| *name != "nodes.test.");
    zone.lock().unwrap().push(("_gaunt._tcp.gpu.test.", srv_record(9771, "gpu3.test.")));
    until(&|addresses, sources| {
        let is_rejected = |index: usize| {
            sources[index]
                .trouble
                .as_ref()
                .is_some_and(|why| why.contains("of 1 targets disappeared"))
        };
        addresses.len() == 5 && addresses[2] == "gpu3.test:9771" && is_rejected(1) && is_rejected(2)
    })
    .await;
}

#[test]
fn record_types_are_parsed_by_name() {
    assert_eq!(DnsRecordType::parse_record_type("srv"), Some(DnsRecordType::Srv));
    assert_eq!(DnsRecordType::parse_record_type("AAAA"), Some(DnsRecordType::Aaaa));
    assert_eq!(DnsRecordType::parse_record_type("MX"), None);
    let record_type = RecordType::SRV;
    assert_eq!(record_type, srv_record(1, "a.").record_type());
}
