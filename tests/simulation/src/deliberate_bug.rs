//! Deliberate bugs at the seams between the aggregator and the world: the invariants must find each of them.

/// A bug that a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliberateBug {
    /// The content of a file is not synchronised before it is renamed.
    NoFileSync,
    /// The names of a folder are not synchronised.
    NoFolderSync,
    /// A start does not read the saved state.
    ForgetsState,
    /// Users are told that an action is saved before it is.
    AnswersBeforeSaving,
    /// A page is ingested twice, the second time a second later.
    DoublesPages,
    /// A result is lost between scraping and the engine, and nobody counts it.
    LosesResults,
    /// A counter grows by one sample too much at each page.
    RateOffByOne,
    /// An unfinished file is never replaced: each write leaves one more.
    UnboundedFiles,
    /// Connections that the other side ended are kept.
    UnboundedConnections,
    /// A tick is published with the time of the one before it.
    StaleAnswers,
    /// What is appended to a file is cut off where it is longer than a disk block, and nobody hears of it.
    CutOffAppends,
    /// An action of a peer is answered and not applied.
    IgnoresPeerActions,
    /// A start reads the findings without their acknowledgements.
    LosesAcknowledgements,
    /// A file that is removed stays: the oldest segments of a recording, and requests that the store has.
    KeepsRemovedFiles,
    /// One request of ten to the store counts as accepted and is never sent.
    SkipsStoreRequests,
    /// Settings that are reloaded are not applied.
    IgnoresReloads,
    /// Segments of a recording are not synchronised.
    NoSegmentSync,
    /// Requests for the store are not synchronised.
    NoRequestSync,
    /// One append of fifty is lost as a whole.
    LosesAppends,
    /// Every delivery is kept in memory.
    KeepsDeliveries,
}

impl DeliberateBug {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::NoFileSync,
        Self::NoFolderSync,
        Self::ForgetsState,
        Self::AnswersBeforeSaving,
        Self::DoublesPages,
        Self::LosesResults,
        Self::RateOffByOne,
        Self::UnboundedFiles,
        Self::UnboundedConnections,
        Self::StaleAnswers,
        Self::CutOffAppends,
        Self::IgnoresPeerActions,
        Self::LosesAcknowledgements,
        Self::KeepsRemovedFiles,
        Self::SkipsStoreRequests,
        Self::IgnoresReloads,
        Self::NoSegmentSync,
        Self::NoRequestSync,
        Self::LosesAppends,
        Self::KeepsDeliveries,
    ];
}
