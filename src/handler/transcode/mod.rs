//! Does a job: the source is fetched and looked at, the outputs are made and published (contract §5, §7, §11).
//!
//! A job goes: its secrets, opened in memory → `fetching`: download and probe → `processing`: ffmpeg in its cage →
//! `uploading`: every file, the claim proven before each → its facts. Each step is fenced; what goes wrong becomes an
//! ending (`ending`), and when this future is dropped, ffmpeg is stopped and the directory goes with it.

mod access;
mod ending;
mod memory;
mod phase;
mod publish;
mod refresh;
mod workshop;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout_at};

pub use refresh::{Patience, Refresher};
pub use workshop::{Promise, Spare, Workshop};

use access::JobAccess;
use ending::Stop;
use phase::Phase;
use publish::Outgoing;

use crate::domain::transcode::{JobSpec, SourceFacts};
use crate::domain::{JobStatus, RequesterId};
use crate::media::{self, Caps, Ffmpeg, MediaError, WorkDir};
use crate::storage::{Arrival, Cause, Doing, Storage, StorageError};
use crate::store::ClaimedJob;
use crate::worker::{Handler, Held, JobEnding, Jobs};

/// Contract §11: a larger source may not become an output of more than twice its size. 1 GB is 10⁹ bytes.
const LARGE: u64 = 1_000_000_000;
/// Beside the source there must be room for what is made of it.
const ROOM_PER_BYTE: u64 = 3;
/// And for playlists, pictures and the like of a small one.
const ROOM_AT_LEAST: u64 = 64 * 1024 * 1024;

/// Does jobs.
pub struct Transcoder {
    /// Opens secrets, asks for new ones.
    pub refresher: Refresher,
    /// Where media is.
    pub storage: Arc<Storage>,
    /// What encodes.
    pub ffmpeg: Arc<Ffmpeg>,
    /// Where it is done.
    pub workshop: Arc<Workshop>,
    /// How much a job may take.
    pub caps: Caps,
    /// Of a source.
    pub max_source_bytes: u64,
}

impl Handler<Jobs> for Transcoder {
    async fn handle(&self, job: ClaimedJob, held: &Held<Jobs>) -> JobEnding {
        let (claim, begun) = (job.claim, Instant::now());
        let ending = self.work(&job, held).await.unwrap_or_else(|Stop(ending)| ending);
        let (outcome, code) = match &ending {
            JobEnding::Succeeded(..) => ("succeeded", None),
            JobEnding::Failed(failure) => ("failed", Some(failure.code.as_str())),
            JobEnding::Released(reason, _) => ("released", Some(reason.as_str())),
        };
        let seconds = begun.elapsed().as_secs_f64();
        tracing::info!(job_id = %claim.job_id, requester_id = job.requester_id, outcome, code, seconds, "job");
        ending
    }
}

impl Transcoder {
    async fn work(&self, job: &ClaimedJob, held: &Held<Jobs>) -> Result<JobEnding, Stop> {
        let spec = JobSpec::read(&job.request)
            .ok()
            .filter(|spec| spec.version <= JobSpec::VERSION)
            .ok_or_else(|| Stop::failed("request_unreadable", "this release cannot read the request"))?;
        let requester: RequesterId =
            job.requester_id.parse().map_err(|_| Stop::failed("internal", "the requester's name is none"))?;
        // Before the first step: a key that this process lacks costs the job nothing.
        let access = JobAccess::open(&self.refresher, held, &spec, &requester).await?;
        let end = Instant::now() + Duration::from_secs(u64::from(spec.timeout_seconds));
        match timeout_at(end, self.steps(&access, end)).await {
            Ok(done) => done,
            Err(_) => Err(too_slow(access.phase(), spec.timeout_seconds)),
        }
    }

    async fn steps(&self, job: &JobAccess<'_>, end: Instant) -> Result<JobEnding, Stop> {
        let storage = || self.storage.of(job.spec, job.requester, job);

        let fetching = Phase::enter(job, JobStatus::Fetching).await?;
        job.insist_on_keys().await?;
        let (shop, claim) = (Arc::clone(&self.workshop), job.claim());
        let dir = tokio::task::spawn_blocking(move || shop.dir_for(&claim)).await;
        let dir: Arc<WorkDir> = Arc::new(dir.map_err(std::io::Error::other)??);
        let arriving = Arriving {
            shop: &self.workshop,
            phase: &fetching,
            expected: OnceLock::new(),
            promise: OnceLock::new(),
        };
        let fetched = storage()
            .fetch(&dir.input(), self.max_source_bytes, &arriving)
            .await
            .map_err(|error| fetching.stop(&error, Doing::Fetch))?;
        let source = self.ffmpeg.inspect(&dir, &self.caps).await?;
        let facts = SourceFacts { size_bytes: fetched.size_bytes, ..source.facts.clone() };

        let processing = Phase::enter(job, JobStatus::Processing).await?;
        let left = end.saturating_duration_since(Instant::now());
        let caps = caps_for(self.caps, fetched.size_bytes, left);
        let tell = |progress| processing.encoding(&progress);
        let made = self.ffmpeg.make(&dir, &source, &job.spec.outputs, &caps, &tell).await;
        let made = made.map_err(|error| arriving.blame(error, &dir))?;

        let uploading = Phase::enter(job, JobStatus::Uploading).await?;
        let outgoing = Outgoing { spec: job.spec, claim, storage: storage(), phase: &uploading };
        let outputs = outgoing.all(&made).await?;
        Ok(JobEnding::Succeeded(Some(json!(facts)), json!(outputs)))
    }
}

/// The caps of one job: twice a large source, and never longer than the job itself has left.
fn caps_for(caps: Caps, source_bytes: u64, left: Duration) -> Caps {
    let twice = if source_bytes > LARGE { source_bytes.saturating_mul(2) } else { u64::MAX };
    Caps { output_bytes: caps.output_bytes.min(twice), wall: caps.wall.min(left), ..caps }
}

fn too_slow(phase: JobStatus, seconds: u32) -> Stop {
    let code = if phase == JobStatus::Processing { "encode_timeout" } else { "storage_timeout" };
    Stop::failed(code, format!("{phase} was not over when the job's timeout_seconds={seconds} were"))
}

/// A source on its way: room is promised for it before its first byte, and progress is told.
struct Arriving<'a> {
    shop: &'a Arc<Workshop>,
    phase: &'a Phase<'a>,
    expected: OnceLock<Option<u64>>,
    promise: OnceLock<Promise>,
}

impl Arriving<'_> {
    /// For the source, and for what is made of it.
    fn room_for(bytes: u64) -> u64 {
        bytes.saturating_mul(ROOM_PER_BYTE).saturating_add(ROOM_AT_LEAST)
    }

    /// Room for `bytes` of source, as part of one promise.
    fn insist_on_room(&self, bytes: u64) -> Result<(), StorageError> {
        let local = |error: std::io::Error| StorageError::new(Cause::Local, error.to_string());
        let room = Self::room_for(bytes);
        if !self.shop.could_hold(room).map_err(local)? {
            return Err(StorageError::new(
                Cause::TooLarge,
                "the source is larger than any disk of this worker",
            ));
        }
        let is_granted = match self.promise.get() {
            Some(promise) => promise.grow(room).map_err(local)?,
            None => self.shop.promise(room).map_err(local)?.is_some_and(|new| self.promise.set(new).is_ok()),
        };
        if is_granted { Ok(()) } else { Err(StorageError::new(Cause::NoRoom, "no room for the source here")) }
    }

    /// An encoder without room: this job's own fault when it has used more than it was promised.
    fn blame(&self, error: MediaError, dir: &WorkDir) -> Stop {
        let promised = self.promise.get().map_or(0, Promise::bytes);
        if error.code == media::NO_ROOM && dir.size_bytes() > promised {
            return Stop::failed("output_too_large", "the outputs need more room than this worker has");
        }
        error.into()
    }
}

impl Arrival for Arriving<'_> {
    fn expects(&self, size_bytes: Option<u64>) -> Result<(), StorageError> {
        let _ = self.expected.set(size_bytes); // a download that begins again expects the same
        self.insist_on_room(size_bytes.unwrap_or(0))
    }

    fn has(&self, bytes: u64) -> Result<(), StorageError> {
        let expected = self.expected.get().copied().flatten();
        let promised = self.promise.get().map_or(0, Promise::bytes);
        if expected.is_none() && promised < Self::room_for(bytes) {
            // In steps: not every piece looks at the disk.
            self.insist_on_room(bytes.next_multiple_of(ROOM_AT_LEAST))?;
        }
        if let Some(promise) = self.promise.get() {
            promise.written(bytes);
        }
        self.phase.percent(bytes, expected, None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_source_may_double_and_a_small_one_has_the_absolute_cap() {
        let caps = Caps { output_bytes: 5_000_000_000, ..Caps::default() };
        let cap = |bytes| caps_for(caps, bytes, caps.wall).output_bytes;
        assert_eq!(
            [1, LARGE, LARGE + 1, 2_500_000_001].map(cap),
            [5_000_000_000, 5_000_000_000, 2 * LARGE + 2, 5_000_000_000]
        );
        assert_eq!(caps_for(caps, 1, Duration::from_secs(7)).wall, Duration::from_secs(7));
    }
}
