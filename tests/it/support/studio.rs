//! A real ffmpeg in its real cage, and media to feed it, made by ffmpeg's own generators.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use euterpe::domain::transcode::{JobSpec, OutputSpec, Policy, parse_request};
use euterpe::media::{Caps, EncodeProgress, Ffmpeg, Made, MediaError, Source, Tools, WorkDir};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::requester;

/// Pictures and sound of two seconds.
pub const TWO_SECONDS: &str = "-f lavfi -i testsrc2=s=320x180:r=25:d=2 -f lavfi -i sine=f=440:r=44100:d=2";
/// The usual source.
pub const CLIP: &str = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -g 25 -c:a aac -f mp4";

/// An ffmpeg and a place to work.
pub struct Studio {
    pub ffmpeg: Ffmpeg,
    pub root: TempDir,
}

pub fn tools() -> Tools {
    Tools {
        launcher: env!("CARGO_BIN_EXE_euterpe-transcode").into(),
        ffmpeg: "/usr/bin/ffmpeg".into(),
        ffprobe: "/usr/bin/ffprobe".into(),
        threads: 2,
    }
}

impl Studio {
    pub async fn open() -> Self {
        let ffmpeg = Ffmpeg::find(tools(), true, &std::env::temp_dir()).await.unwrap();
        Self { ffmpeg, root: tempfile::Builder::new().prefix("eut-studio").tempdir().unwrap() }
    }

    /// A work directory with `source` in it.
    pub fn dir(&self, source: &Path) -> Arc<WorkDir> {
        let dir = WorkDir::create(self.root.path(), &uuid::Uuid::now_v7().to_string()).unwrap();
        fs::copy(source, dir.input()).unwrap();
        Arc::new(dir)
    }

    pub async fn inspect(&self, source: &Path, caps: &Caps) -> Result<Source, MediaError> {
        self.ffmpeg.inspect(&self.dir(source), caps).await
    }

    /// The code that `source` is refused with.
    pub async fn refusal(&self, source: &Path, caps: &Caps) -> &'static str {
        match self.inspect(source, caps).await {
            Ok(source) => panic!("it was taken: {:?}", source.facts),
            Err(error) => error.code,
        }
    }

    /// All of `asked`, made of `source`.
    pub async fn make(&self, source: &Path, asked: Value) -> Result<Set, MediaError> {
        self.make_within(source, asked, &Caps::default(), &|_| {}).await
    }

    pub async fn make_within(
        &self,
        source: &Path,
        asked: Value,
        caps: &Caps,
        on_progress: &(dyn Fn(EncodeProgress) + Send + Sync),
    ) -> Result<Set, MediaError> {
        let dir = self.dir(source);
        let found = self.ffmpeg.inspect(&dir, caps).await?;
        let made = self.ffmpeg.make(&dir, &found, &outputs(&asked), caps, on_progress).await?;
        Ok(Set { made, _dir: dir })
    }
}

/// What was made, while its directory is kept.
#[derive(Debug)]
pub struct Set {
    pub made: Vec<Made>,
    _dir: Arc<WorkDir>,
}

/// Outputs as a request asks for them, through everything that a request goes through.
pub fn outputs(asked: &Value) -> Vec<OutputSpec> {
    let body = json!({
        "source": {"uri": "s3://media-in/a"},
        "storage": {"output_prefix": "s3://media-out/b",
                    "credentials": {"access_key_id": "a", "secret_access_key": "b"}},
        "outputs": asked,
    });
    let now = "2026-11-18T06:00:00Z".parse().unwrap();
    let accepted = parse_request(body.to_string().as_bytes(), &Policy::default(), &requester("acme"), now);
    let accepted = accepted.unwrap_or_else(|refusal| panic!("{body}: {refusal:#?}"));
    JobSpec::read(&accepted.document).unwrap().outputs
}

/// Media by `arguments` of ffmpeg, made once and kept below target/.
pub fn media(name: &str, arguments: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("media");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(name);
    if !path.exists() {
        let unfinished = dir.join(format!("{name}.{}", uuid::Uuid::now_v7()));
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "error", "-nostdin", "-y"]).args(arguments.split_whitespace()).arg(&unfinished);
        assert!(command.status().unwrap().success(), "{arguments}");
        fs::rename(&unfinished, &path).unwrap();
    }
    path
}

/// The usual source.
pub fn clip() -> PathBuf {
    media("clip.mp4", &format!("{TWO_SECONDS} {CLIP}"))
}

/// What ffprobe, outside of any cage, says of `entry`.
pub fn probed(path: &Path, entries: &str) -> String {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-show_entries", entries, "-of", "csv=p=0"]).arg(path);
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
}
