//! Target sources that flags name.

use anyhow::Context as _;
use gaunt_schema::SanitizedText;
use gaunt_scrape::{
    DiscoverySource, DnsDiscovery, DnsRecordType, HttpDiscovery, REFRESH, ServerAccess, parse_url,
};

use super::ScrapeArguments;

/// Target sources named by flags.
pub fn sources_from_flags(flags: &ScrapeArguments) -> anyhow::Result<Vec<DiscoverySource>> {
    let origin = SanitizedText::new("--targets");
    let mut sources: Vec<DiscoverySource> = flags
        .targets
        .iter()
        .map(|list| DiscoverySource::List(list.clone(), origin.clone()))
        .collect();
    sources.extend(flags.targets_file.iter().cloned().map(DiscoverySource::TargetsFile));
    sources.extend(flags.file_sd.iter().cloned().map(DiscoverySource::Files));
    for url in &flags.http_sd {
        let endpoint = parse_url(url).context("--http-sd")?;
        let access = ServerAccess::default();
        sources.push(DiscoverySource::Http(HttpDiscovery { endpoint, refresh: REFRESH, access }));
    }
    for name in &flags.dns_sd {
        let (record, name) = match name.split_once(' ') {
            None => (DnsRecordType::Srv, name.as_str()),
            Some((record, name)) => (
                DnsRecordType::parse_record_type(record).with_context(|| {
                    format!("--dns-sd: {record:?} is not a record type; write SRV, A or AAAA")
                })?,
                name.trim(),
            ),
        };
        let name = name.to_owned();
        sources.push(DiscoverySource::Dns(DnsDiscovery {
            name,
            record,
            refresh: REFRESH,
            server: None,
        }));
    }
    Ok(sources)
}
