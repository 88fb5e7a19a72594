//! Whether new credentials fit the job they are for (design §5.15): the same kind, the same places.

use url::Url;

use super::fault::{Faults, Rejection, below};
use super::spec::{JobSpec, Place, Target};
use super::{Hidden, StorageSecret};
use crate::domain::origin;

impl JobSpec {
    /// Refuses keys for a job on signed urls, signed urls for a job on keys, and urls that lead elsewhere or miss an
    /// output: the sealed secret is replaced as a whole.
    pub fn check_refresh(&self, new: &StorageSecret) -> Result<(), Rejection> {
        let faults = Faults::default();
        if self.is_signed() {
            self.check_urls(new, &faults);
        } else if new.source_uri.is_some() || !new.upload_urls.is_empty() {
            faults.add("", "must be credentials: this job has no signed urls");
        }
        faults.verdict(Some(()))
    }

    /// Whether nothing can be reached without keys or signed urls.
    #[must_use]
    pub fn needs_keys(&self) -> bool {
        let is_s3 = |place: &Place| matches!(place, Place::S3 { .. });
        is_s3(&self.source.place)
            || self.storage.output_prefix.as_ref().is_some_and(is_s3)
            || self.is_signed()
    }

    fn is_signed(&self) -> bool {
        let is_upload = |target: &Target| matches!(target, Target::UploadOrigin(_));
        matches!(self.source.place, Place::Signed { .. }) || self.outputs.iter().any(|o| is_upload(&o.target))
    }

    fn check_urls(&self, new: &StorageSecret, faults: &Faults) {
        if new.credentials.is_some() {
            faults.add("/credentials", "must be source_uri and upload_urls: this job has signed urls");
            return;
        }
        match (&self.source.place, &new.source_uri) {
            (Place::Signed { origin }, given) => same_origin("/source_uri", origin, given.as_ref(), faults),
            (_, Some(_)) => {
                faults.add("/source_uri", "must be left out: the source is not behind a signed url");
            }
            (_, None) => {}
        }
        for output in &self.outputs {
            if let Target::UploadOrigin(origin) = &output.target {
                let pointer = below("/upload_urls", &output.name);
                same_origin(&pointer, origin, new.upload_urls.get(&output.name), faults);
            }
        }
        for name in new.upload_urls.keys().filter(|name| self.outputs.iter().all(|o| o.name != **name)) {
            faults.add(&below("/upload_urls", name), "must be left out: the job has no such output");
        }
    }
}

fn same_origin(pointer: &str, old: &str, given: Option<&Hidden>, faults: &Faults) {
    match given.map(|url| Url::parse(url.expose())) {
        None => faults.add(pointer, "is needed: signed urls are replaced all together"),
        Some(Ok(url)) if origin(&url) == old => {}
        Some(_) => faults.add(pointer, format!("must keep scheme, host and port: {old}")),
    }
}

impl StorageSecret {
    /// Whether every url leads to the object it led to before. For a worker, which can open the old ones.
    #[must_use]
    pub fn leads_where(&self, old: &Self) -> bool {
        let same = |a: &Hidden, b: &Hidden| object(a).is_some() && object(a) == object(b);
        let source = match (&self.source_uri, &old.source_uri) {
            (Some(new), Some(old)) => same(new, old),
            (new, old) => new.is_none() && old.is_none(),
        };
        source
            && self.upload_urls.len() == old.upload_urls.len()
            && self
                .upload_urls
                .iter()
                .all(|(name, url)| old.upload_urls.get(name).is_some_and(|old| same(url, old)))
    }
}

/// Origin and path.
fn object(url: &Hidden) -> Option<(String, String)> {
    let url = Url::parse(url.expose()).ok()?;
    Some((origin(&url), url.path().to_owned()))
}
