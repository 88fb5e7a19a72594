//! The face `transcode` as types (design §6): what a requester may ask, what is wrong with what they asked, and what we
//! answer. Pure: bytes in, types or faults out.
//!
//! A request travels: `strict_json` → `read` (names, types, ranges) → `judge` (everything against everything), with
//! `place` for uris and `expand` for presets and codecs → [`Accepted`]: a [`JobSpec`] in clear, secrets apart.

mod accept;
mod answer;
mod bodies;
mod codecs;
mod error_code;
mod expand;
mod fault;
mod fields;
mod hidden;
mod judge;
mod place;
mod policy;
mod preset;
mod read;
mod refresh;
mod request;
mod request_hash;
mod secret;
mod signed_url;
mod spec;
mod strict_json;
mod words;

pub use accept::{Accepted, parse_request};
pub use answer::{
    AcceptedAnswer, AudioFacts, CredentialVersion, DeliveryAttempt, ErrorBody, ErrorDetail, JobError,
    JobList, JobSummary, OutputFacts, Progress, Redelivered, SourceFacts, StatusDocument, Timeline,
    TimelineEvent, Timings, VideoFacts,
};
pub use bodies::{
    CancelRequest, CredentialsUpdate, RedeliverBody, RedeliverRequest, RetryRequest, parse_refresh_answer,
};
pub use error_code::ErrorCode;
pub use fault::{Fault, Rejection};
pub use hidden::Hidden;
pub use policy::Policy;
pub use request::{
    AudioRequest, ClipRequest, Credentials, HlsRequest, LoudnessRequest, OutputRequest, RenditionRequest,
    SourceRequest, StorageRequest, ThumbnailsRequest, TranscodeRequest, VideoRequest,
};
pub use request_hash::REQUEST_HASH_VERSION;
pub use secret::{BadSecret, CallbackSecret, StorageSecret};
pub use spec::{
    AudioEncode, AudioSpec, ClipSpec, JobSpec, LoudnessSpec, MediaSpec, OutputSpec, Place, Rate,
    RenditionSpec, SourceSpec, StorageSpec, Target, VideoEncode, VideoSpec,
};
pub use strict_json::MAX_BODY_BYTES;
pub use words::{AudioCodec, Container, OutputLayout, Preset, SegmentType, VideoCodec};
