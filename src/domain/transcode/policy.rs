//! What a deployment accepts. Made once from its settings.

use std::path::PathBuf;

use crate::domain::EgressPolicy;

/// What a deployment accepts.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Where it lets itself be sent.
    pub egress: EgressPolicy,
    /// Below which directories `file://` is served: each requester has `<root>/<requester_id>/`. Empty: nowhere.
    pub file_roots: Vec<PathBuf>,
    /// Which lines a request may name.
    pub queues: Vec<String>,
    /// Sources that say they are larger are refused at once.
    pub max_source_bytes: Option<u64>,
}

impl Policy {
    /// The line a request waits in unless it names another.
    pub const DEFAULT_QUEUE: &'static str = "transcode";
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            egress: EgressPolicy::default(),
            file_roots: Vec::new(),
            queues: vec![Self::DEFAULT_QUEUE.to_owned()],
            max_source_bytes: None,
        }
    }
}
