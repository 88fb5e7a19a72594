//! Outputs go out: what an output is made of first, what leads to it last, and nothing before all of them are made.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};

use super::ending::Stop;
use super::phase::Phase;
use crate::domain::Claim;
use crate::domain::transcode::{JobSpec, MediaSpec, OutputFacts, OutputLayout, OutputSpec, Place, Target};
use crate::media::{Made, MadeFile, PLAYLIST};
use crate::storage::{Destination, Doing, JobStorage, Published};

/// Files of one output that are on their way at once.
const AT_ONCE: usize = 4;

/// What is on its way, and how much of it has gone.
pub(super) struct Outgoing<'a> {
    pub(super) spec: &'a JobSpec,
    pub(super) claim: Claim,
    pub(super) storage: JobStorage<'a>,
    pub(super) phase: &'a Phase<'a>,
}

impl Outgoing<'_> {
    /// Publishes every output, in the order of the request.
    pub(super) async fn all(&self, made: &[Made]) -> Result<Vec<OutputFacts>, Stop> {
        let total: u64 = made.iter().map(|one| one.size_bytes).sum();
        let mut gone = 0;
        let mut facts = Vec::with_capacity(made.len());
        for (output, made) in self.spec.outputs.iter().zip(made) {
            facts.push(self.one(output, made, (gone, total)).await?);
            gone += made.size_bytes;
        }
        Ok(facts)
    }

    async fn one(
        &self,
        output: &OutputSpec,
        made: &Made,
        (gone, total): (u64, u64),
    ) -> Result<OutputFacts, Stop> {
        let sent = AtomicU64::new(gone);
        let publish = |file: MadeFile| self.file(output, file, &sent, total);
        // A playlist that is there promises its segments.
        let is_playlist = |file: &MadeFile| file.content_type == PLAYLIST;
        let (playlists, parts): (Vec<_>, Vec<_>) = made.files.iter().cloned().partition(is_playlist);
        let mut published: Vec<Published> =
            stream::iter(parts.into_iter().map(publish)).buffered(AT_ONCE).try_collect().await?;
        for playlist in playlists {
            published.push(publish(playlist).await?);
        }
        let uri = match (&output.media, &output.target) {
            // Of several pictures, the pattern of their names.
            (MediaSpec::Thumbnails { count: 2.., .. }, Target::Path(path)) => self.uri_of(&self.below(path)),
            // What leads to the others is published last.
            _ => published.last().map(|file| file.uri.clone()).unwrap_or_default(),
        };
        let only = if let [one] = published.as_slice() { Some(one) } else { None };
        Ok(OutputFacts {
            name: output.name.clone(),
            uri,
            size_bytes: published.iter().map(|file| file.size_bytes).sum(),
            sha256: only.map(|file| file.sha256.clone()),
            container: made.container.to_string(),
            duration_seconds: made.duration_seconds,
            bitrate_kbps: made.bitrate_kbps,
            video: made.video.clone(),
            audio: made.audio.clone(),
            file_count: u32::try_from(published.len()).unwrap_or(u32::MAX),
        })
    }

    async fn file(
        &self,
        output: &OutputSpec,
        file: MadeFile,
        sent: &AtomicU64,
        total: u64,
    ) -> Result<Published, Stop> {
        let path = self.below(&file.name);
        let to = match &output.target {
            Target::Path(_) => Destination::Below(&path),
            Target::UploadOrigin(_) => Destination::Upload(&output.name),
        };
        let told = AtomicU64::new(0);
        let tell = |bytes: u64| {
            // A part that is sent again counts once.
            let more = bytes.saturating_sub(told.fetch_max(bytes, Ordering::Relaxed));
            let all = sent.fetch_add(more, Ordering::Relaxed) + more;
            self.phase.percent(all, Some(total), Some(&output.name));
        };
        let published = self.storage.publish(&file.path, &to, file.content_type, &tell).await;
        published.map_err(|error| self.phase.stop(&error, Doing::Publish))
    }

    /// Below the output prefix; with `per_claim`, where no other claim of this job writes (design §5.16).
    fn below(&self, path: &str) -> String {
        match self.spec.storage.output_layout {
            OutputLayout::Exact => path.to_owned(),
            OutputLayout::PerClaim => {
                let Claim { job_id, version, token } = self.claim;
                format!("{job_id}/{version}-{}/{path}", &token.simple().to_string()[..8])
            }
        }
    }

    fn uri_of(&self, path: &str) -> String {
        match &self.spec.storage.output_prefix {
            Some(Place::S3 { bucket, key }) => format!("s3://{bucket}/{key}{path}"),
            Some(Place::File { path: dir }) => format!("file://{}/{path}", dir.trim_end_matches('/')),
            Some(Place::Signed { origin }) => origin.clone(),
            None => path.to_owned(),
        }
    }
}
