//! The state that the routes share: the answer source, streams, roles, recording and the serialized overview.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::FromRef;
use hyper::body::Bytes;
use tokio::sync::{mpsc, watch};

use super::{
    access_roles::AccessRoles, answer_streams::StreamHub, audit_log::AuditLog,
    peer_service::PeerService, receive_service::ReceiveService,
};
use crate::answer_source::AnswerSource;
use gaunt_api::Overview;
use gaunt_store::StoreStatus;

/// Shared state of the routes.
#[derive(Clone)]
pub(super) struct ApiState {
    pub(super) source: AnswerSource,
    pub(super) hub: StreamHub,
    pub(super) roles: AccessRoles,
    pub(super) audit: AuditLog,
    pub(super) recording: Option<RecordingFollowFn>,
    pub(super) store: Option<watch::Receiver<StoreStatus>>,
    pub(super) peers: Option<PeerService>,
    pub(super) receive: Option<ReceiveService>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) overview_cache: OverviewCache,
}

/// Returns the bytes of a segment from now on; none if there are too many followers.
pub type RecordingFollowFn = Arc<dyn Fn() -> Option<mpsc::Receiver<Bytes>> + Send + Sync>;

/// The overview as last serialized: all clients request the same one until the next tick.
#[derive(Clone, Default)]
pub(super) struct OverviewCache(Arc<Mutex<Option<CachedOverview>>>);

/// An overview and its JSON.
type CachedOverview = (Arc<Overview>, Bytes);

impl OverviewCache {
    pub(super) fn of(&self, overview: Arc<Overview>) -> serde_json::Result<Bytes> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((cached_overview, bytes)) = &*cached
            && Arc::ptr_eq(cached_overview, &overview)
        {
            return Ok(bytes.clone());
        }
        let bytes = Bytes::from(serde_json::to_vec(&overview)?);
        *cached = Some((overview, bytes.clone()));
        Ok(bytes)
    }
}

impl FromRef<ApiState> for AnswerSource {
    fn from_ref(state: &ApiState) -> Self {
        state.source.clone()
    }
}

impl FromRef<ApiState> for StreamHub {
    fn from_ref(state: &ApiState) -> Self {
        state.hub.clone()
    }
}
