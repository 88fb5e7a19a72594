//! The query of a call: known names, each once, and what is wrong with the rest.

use axum::http::Uri;

use crate::domain::JobId;
use crate::domain::transcode::{ErrorCode, Fault, Rejection};

/// The parameters of a call.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the query of `uri`; a name that is not in `known`, or comes twice, is a fault.
    pub(super) fn of(uri: &Uri, known: &[&str]) -> Result<Self, Rejection> {
        let parameters: Vec<(String, String)> =
            url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        for (n, (name, value)) in parameters.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let message = format!("is not known here; there are {}", known.join(", "));
                // The name came from outside: only its beginning is said back.
                return Err(fault(&name.chars().take(40).collect::<String>(), message));
            }
            if parameters[..n].iter().any(|(before, _)| before == name) {
                return Err(fault(name, "must come once"));
            }
            if value.contains('\0') {
                return Err(fault(name, "must not hold U+0000"));
            }
        }
        Ok(Self(parameters))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The job that is meant.
    pub(super) fn job_id(&self) -> Result<JobId, Rejection> {
        let text = self.get("job_id").ok_or_else(|| fault("job_id", "is needed: which job?"))?;
        job_id("job_id", text)
    }

    /// A whole number between two end stops.
    pub(super) fn number(&self, name: &str, least: u8, most: u8) -> Result<Option<u8>, Rejection> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.map(Some).ok_or_else(|| fault(name, format!("must be a whole number from {least} to {most}")))
    }
}

pub(super) fn job_id(name: &str, text: &str) -> Result<JobId, Rejection> {
    text.parse().map(JobId).map_err(|_| fault(name, "must be a uuid, as POST /transcode answered it"))
}

pub(super) fn fault(name: &str, message: impl Into<String>) -> Rejection {
    let fault = Fault { pointer: format!("/{name}"), message: message.into() };
    Rejection {
        code: ErrorCode::InvalidRequest,
        message: "the query is not acceptable".into(),
        faults: vec![fault],
    }
}
