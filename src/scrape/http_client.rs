//! HTTP client of a server's API with the credentials of a group: another one is created when these change.

use std::time::Duration;

use gaunt_schema::plain_error;
use hyper::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Client, ClientBuilder, redirect::Policy};
use tokio::sync::watch;

use super::server_access::{CredentialState, LoadedCredentials};

/// The HTTP client of one server. Neither redirects nor a proxy get to see its credentials.
#[derive(Debug)]
pub struct HttpClient {
    credentials: watch::Receiver<CredentialState>,
    headers: HeaderMap,
    deadline: Option<Duration>,
    /// None until it is needed.
    client: Option<Client>,
}

impl HttpClient {
    /// A client whose requests have these headers and, unless they set another, this deadline.
    pub fn new(
        credentials: watch::Receiver<CredentialState>,
        headers: HeaderMap,
        deadline: Option<Duration>,
    ) -> Self {
        Self { credentials, headers, deadline, client: None }
    }

    /// Returns the client with the present credentials, or why there is none; new ones require new connections.
    pub fn current(&mut self) -> Result<&Client, String> {
        if self.credentials.has_changed().unwrap_or(false) {
            self.client = None;
        }
        if self.client.is_none() {
            let credentials = self.credentials.borrow_and_update().clone();
            let credentials = credentials.map_err(|why| why.to_string())?;
            self.client = Some(self.build_client(&credentials)?);
        }
        self.client.as_ref().ok_or_else(|| "no HTTP client".to_owned())
    }

    fn build_client(&self, credentials: &LoadedCredentials) -> Result<Client, String> {
        let mut headers = self.headers.clone();
        headers.extend(credentials.authorization.iter().map(|it| (AUTHORIZATION, it.clone())));
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .tls_backend_preconfigured(credentials.tls_config().clone())
            .default_headers(headers);
        let client = match &credentials.socket {
            Some(socket) => client.unix_socket(socket.as_path()),
            None => client,
        };
        let client = self.deadline.into_iter().fold(client, ClientBuilder::timeout);
        client.build().map_err(|error| {
            format!("cannot create an HTTP client: {}", plain_error::network(&error))
        })
    }
}
