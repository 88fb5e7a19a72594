//! Everything in a request held against everything else: places, targets, names, callbacks, and the way to storage.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use url::Url;

use super::fault::Faults;
use super::place::{Asker, path_complaint};
use super::read::MAX_THUMBNAILS;
use super::request::{OutputRequest, TranscodeRequest};
use super::secret::MAX_SECRET_BYTES;
use super::spec::{JobSpec, OutputSpec, Place, SourceSpec, StorageSpec, Target};
use super::words::OutputLayout;
use super::{Hidden, expand};
use crate::domain::origin;

/// `run_at` lies at most so far ahead: partitions exist for no longer.
const MAX_DELAY: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Room for what layouts and segment names add to a key, of the 1024 bytes a key may have.
const MAX_KEY_BYTES: usize = 900;

/// A request, who asks, and where to complain.
pub(super) struct Judge<'a> {
    pub(super) asker: Asker<'a>,
    pub(super) request: &'a TranscodeRequest,
    pub(super) faults: &'a Faults,
}

impl Judge<'_> {
    /// The job, and the webhook's url; `None` only with a fault.
    pub(super) fn all(&self, now: Timestamp) -> Option<(JobSpec, Option<Url>)> {
        let source = self.source();
        let storage = self.storage();
        let outputs = self.outputs();
        self.names_and_paths();
        let webhook = self.callbacks();
        self.queue_and_time(now);
        let source = source?;
        let storage = storage?;
        self.one_way_in(&source.place, storage.output_prefix.as_ref());
        let outputs = outputs.into_iter().collect::<Option<Vec<_>>>()?;
        let timeout_seconds = self.request.timeout_seconds.unwrap_or(7200);
        Some((JobSpec { version: JobSpec::VERSION, source, storage, outputs, timeout_seconds }, webhook))
    }

    /// The value, or a fault at `pointer`.
    fn take<T>(&self, pointer: &str, judged: Result<T, String>) -> Option<T> {
        judged.map_err(|complaint| self.faults.add(pointer, complaint)).ok()
    }

    fn source(&self) -> Option<SourceSpec> {
        let source = &self.request.source;
        if let (Some(size), Some(most)) = (source.size_bytes, self.asker.policy.max_source_bytes)
            && size > most
        {
            self.faults.add(
                "/source/size_bytes",
                format!("must be at most {most}: larger sources are not taken here"),
            );
        }
        let uri = source.uri.expose();
        if uri.is_empty() {
            return None;
        }
        let place = self.take("/source/uri", self.asker.source(uri))?;
        Some(SourceSpec { place, size_bytes: source.size_bytes, sha256: source.sha256.clone() })
    }

    fn storage(&self) -> Option<StorageSpec> {
        let asked = self.request.storage.clone().unwrap_or_default();
        let endpoint = asked.endpoint.map(|uri| self.take("/storage/endpoint", self.asker.endpoint(&uri)));
        let prefix = asked
            .output_prefix
            .map(|uri| self.take("/storage/output_prefix", self.asker.output_prefix(&uri)));
        let region = asked.region.unwrap_or_else(|| "us-east-1".into());
        if !region.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')) {
            self.faults.add("/storage/region", "must be a region such as eu-west-1: a-z 0-9 - _");
        }
        let can_have_prefix = self.request.outputs.iter().any(|output| output.path.is_some());
        if can_have_prefix && prefix.is_none() {
            let message = "is needed where an output has a path, such as s3://bucket/directory/";
            self.faults.add("/storage/output_prefix", message);
        }
        Some(StorageSpec {
            endpoint: endpoint.map_or(Some(None), |endpoint| endpoint.map(Some))?,
            region,
            path_style: asked.path_style.unwrap_or(false),
            output_prefix: prefix.map_or(Some(None), |prefix| prefix.map(Some))?,
            output_layout: asked.output_layout.unwrap_or(OutputLayout::Exact),
        })
    }

    fn outputs(&self) -> Vec<Option<OutputSpec>> {
        let numbered = self.request.outputs.iter().enumerate();
        numbered.map(|(n, output)| self.output(output, &format!("/outputs/{n}"))).collect()
    }

    fn output(&self, asked: &OutputRequest, at: &str) -> Option<OutputSpec> {
        if self.faults.has(at) {
            return None;
        }
        let target = self.target(asked, at);
        let preset_is_known = !self.faults.has(&format!("{at}/preset"));
        let media = preset_is_known.then(|| expand::media(asked, at, self.faults)).flatten()?;
        if asked.upload_url.is_some() && media.is_many_files() {
            let message = "takes one file, and this output is several: give it a path below output_prefix";
            self.faults.add(&format!("{at}/upload_url"), message);
        }
        Some(OutputSpec { name: asked.name.clone(), target: target?, media, clip: expand::clip(asked) })
    }

    fn target(&self, asked: &OutputRequest, at: &str) -> Option<Target> {
        let path_at = format!("{at}/path");
        match (&asked.path, &asked.upload_url) {
            (Some(path), None) => {
                let judged = path_complaint(path).map_or(Ok(path), Err);
                self.take(&path_at, judged).map(|path| Target::Path(path.clone()))
            }
            (None, Some(url)) => {
                let url = self.take(&format!("{at}/upload_url"), self.asker.url(url.expose()))?;
                Some(Target::UploadOrigin(origin(&url)))
            }
            (Some(_), Some(_)) => {
                self.faults.add(&format!("{at}/upload_url"), "stands beside path: say one of them");
                None
            }
            (None, None) => {
                if !self.faults.has(&format!("{at}/upload_url")) {
                    self.faults.add(&path_at, "is needed, or an upload_url: where does the output go?");
                }
                None
            }
        }
    }

    /// No two outputs share a name or a file, and no output is another's directory.
    fn names_and_paths(&self) {
        let mut names = BTreeMap::new();
        let mut paths: BTreeMap<&str, usize> = BTreeMap::new();
        for (n, output) in self.request.outputs.iter().enumerate() {
            if let Some(first) = names.insert(&output.name, n).filter(|_| !output.name.is_empty()) {
                self.faults
                    .add(&format!("/outputs/{n}/name"), format!("must differ from that of /outputs/{first}"));
            }
            if let Some(path) = &output.path
                && let Some(first) = paths.insert(path, n)
            {
                self.faults
                    .add(&format!("/outputs/{n}/path"), format!("must differ from that of /outputs/{first}"));
            }
        }
        for (path, n) in &paths {
            let mut parents = path.match_indices('/').map(|(end, _)| &path[..end]);
            if let Some(first) = parents.find_map(|parent| paths.get(parent)) {
                let message = format!("must not lie below the path of /outputs/{first}, which is a file");
                self.faults.add(&format!("/outputs/{n}/path"), message);
            }
        }
        for (path, n) in &paths {
            let owner = paths
                .iter()
                .find(|(other, m)| (*m != n && makes_also(other, path)) || (*m < n && may_meet(other, path)));
            if let Some((_, owner)) = owner {
                let message =
                    format!("must differ from the names that /outputs/{owner} makes of its own path");
                self.faults.add(&format!("/outputs/{n}/path"), message);
            }
        }
        let prefix = self.request.storage.as_ref().and_then(|storage| storage.output_prefix.as_ref());
        let longest = paths.keys().map(|path| path.len()).max().unwrap_or(0);
        if prefix.is_some_and(|prefix| prefix.len() + longest > MAX_KEY_BYTES) {
            let message = format!("must have, together with the longest path, at most {MAX_KEY_BYTES} bytes");
            self.faults.add("/storage/output_prefix", message);
        }
    }

    fn callbacks(&self) -> Option<Url> {
        let judge = |pointer: &str, url: &Option<Hidden>| {
            url.as_ref().and_then(|url| self.take(pointer, self.asker.url(url.expose())))
        };
        judge("/refresh_url", &self.request.refresh_url);
        if self.request.events.is_some() && self.request.status_webhook_url.is_none() {
            self.faults
                .add("/events", "must be left out where there is no status_webhook_url to send them to");
        }
        judge("/status_webhook_url", &self.request.status_webhook_url)
    }

    fn queue_and_time(&self, now: Timestamp) {
        let queues = &self.asker.policy.queues;
        if self.request.queue.as_ref().is_some_and(|queue| !queues.contains(queue)) {
            self.faults.add("/queue", format!("must be one of {}", queues.join(", ")));
        }
        let latest = now.saturating_add(MAX_DELAY).unwrap_or(Timestamp::MAX);
        if self.request.run_at.is_some_and(|time| time > latest) {
            self.faults.add("/run_at", "must be at most 30 days ahead");
        }
    }

    /// Keys or signed urls, never both: a refresh replaces the sealed secret as a whole, and nobody but a worker can
    /// open it to keep the other half.
    fn one_way_in(&self, source: &Place, prefix: Option<&Place>) {
        let is_s3 = |place: &Place| matches!(place, Place::S3 { .. });
        let signed_output = self.request.outputs.iter().position(|output| output.upload_url.is_some());
        let uses_s3 = is_s3(source) || prefix.is_some_and(is_s3);
        if uses_s3 && let Some(n) = signed_output {
            let message = "must be a path instead: signed urls and s3:// do not go together in one job";
            return self.faults.add(&format!("/outputs/{n}/upload_url"), message);
        }
        if uses_s3 && matches!(source, Place::Signed { .. }) {
            let message =
                "must not be s3:// where the source is a signed url: give each output an upload_url";
            return self.faults.add("/storage/output_prefix", message);
        }
        let has_keys = self.request.storage.as_ref().is_some_and(|storage| storage.credentials.is_some());
        if uses_s3 && !has_keys && self.request.refresh_url.is_none() {
            let message = "is needed to reach s3://, or a refresh_url that hands it over";
            self.faults.add("/storage/credentials", message);
        } else if has_keys && !uses_s3 {
            self.faults.add("/storage/credentials", "must be left out: nothing in this job is s3://");
        }
        let uploads = self.request.outputs.iter().filter_map(|output| output.upload_url.as_ref());
        let urls: usize = uploads.map(|url| url.expose().len()).sum();
        if urls + self.request.source.uri.expose().len() > MAX_SECRET_BYTES {
            self.faults
                .add("/outputs", format!("must have signed urls of at most {MAX_SECRET_BYTES} bytes in all"));
        }
    }
}

/// Whether an output at `path` may also make a file called `other`: segments and renditions beside a playlist
/// (`index.m3u8` makes `index_…`), pictures by their number (`thumb_%03d.jpg`).
fn makes_also(path: &str, other: &str) -> bool {
    if let Some((stem, ending)) = path.rsplit_once('.')
        && ending.eq_ignore_ascii_case("m3u8")
    {
        return other.strip_prefix(stem).is_some_and(|rest| rest.starts_with('_'));
    }
    let Some((before, _, after)) = numbered(path) else { return false };
    let number = other.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether two paths with a number may make one name: `t_%d.jpg` and `t_%02d.jpg` both make `t_10.jpg`.
fn may_meet(path: &str, other: &str) -> bool {
    let (Some((before, width, after)), Some(_)) = (numbered(path), numbered(other)) else { return false };
    (1..=MAX_THUMBNAILS).any(|nth| makes_also(other, &format!("{before}{nth:0width$}{after}")))
}

/// What stands before the number, its width (of the widest that is taken), and what stands after it.
fn numbered(path: &str) -> Option<(&str, usize, &str)> {
    let (before, rest) = path.split_once('%')?;
    let (width, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
    Some((before, width.parse().unwrap_or(0).min(6), after.strip_prefix('d')?))
}
