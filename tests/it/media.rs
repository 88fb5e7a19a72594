//! Contract §6, §10: what a source is, and what is made of it. Real ffmpeg, in its cage.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use euterpe::domain::transcode::Container;
use euterpe::media::Caps;
use serde_json::json;

use crate::support::studio::{Studio, TWO_SECONDS, clip, media, probed};

/// Sources in the containers of the list, each with what it should be called.
fn sources() -> Vec<(PathBuf, &'static str, Option<&'static str>, Option<&'static str>)> {
    let of = |name: &str, rest: &str| media(name, &format!("{TWO_SECONDS} {rest}"));
    vec![
        (clip(), "mov", Some("h264"), Some("aac")),
        (
            of("a.mkv", "-c:v libx265 -preset ultrafast -x265-params log-level=0 -c:a flac -f matroska"),
            "matroska",
            Some("hevc"),
            Some("flac"),
        ),
        (
            of("a.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -c:a libopus -f webm"),
            "matroska",
            Some("vp9"),
            Some("opus"),
        ),
        (
            of("a.ts", "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -c:a aac -f mpegts"),
            "mpegts",
            Some("h264"),
            Some("aac"),
        ),
        (of("a.avi", "-c:v mpeg4 -c:a libmp3lame -f avi"), "avi", Some("mpeg4"), Some("mp3")),
        (of("a.flv", "-c:v flv1 -c:a libmp3lame -ar 44100 -f flv"), "flv", Some("flv1"), Some("mp3")),
        (of("a.mpg", "-c:v mpeg2video -c:a mp2 -f vob"), "mpeg", Some("mpeg2video"), Some("mp2")),
        (of("a.asf", "-c:v wmv2 -c:a wmav2 -f asf"), "asf", Some("wmv2"), Some("wmav2")),
        (of("a.ogg", "-map 1 -c:a libvorbis -f ogg"), "ogg", None, Some("vorbis")),
        (of("a.flac", "-map 1 -f flac"), "flac", None, Some("flac")),
        (of("a.wav", "-map 1 -f wav"), "wav", None, Some("pcm_s16le")),
        (of("a.mp3", "-map 1 -f mp3"), "mp3", None, Some("mp3")),
        (of("a.aac", "-map 1 -c:a aac -f adts"), "aac", None, Some("aac")),
        (of("a.aiff", "-map 1 -f aiff"), "aiff", None, Some("pcm_s16be")),
    ]
}

#[tokio::test]
async fn every_container_of_the_list_becomes_what_was_asked() {
    let studio = Studio::open().await;
    for (path, container, video, audio) in sources() {
        let found = studio.inspect(&path, &Caps::default()).await.unwrap();
        assert!(
            found.facts.container.as_ref().unwrap().starts_with(container),
            "{path:?}: {:?}",
            found.facts
        );
        assert_eq!(found.facts.video.as_ref().map(|it| it.codec.as_str()), video, "{path:?}");
        assert_eq!(found.facts.audio.as_ref().map(|it| it.codec.as_str()), audio, "{path:?}");
        let asked = if video.is_some() {
            json!([{"name": "v", "path": "v.mp4", "preset": "h264_480p"}])
        } else {
            json!([{"name": "a", "path": "a.m4a", "preset": "aac_128k"}])
        };
        let set = studio.make(&path, asked).await.unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let made = &set.made[0];
        assert_eq!(made.video.as_ref().map(|it| it.codec.as_str()), video.map(|_| "h264"), "{path:?}");
        assert_eq!(made.audio.as_ref().map(|it| it.codec.as_str()), Some("aac"), "{path:?}");
        assert!((made.duration_seconds.unwrap() - 2.0).abs() < 0.5, "{path:?}: {made:?}");
    }
}

#[tokio::test]
async fn every_preset_is_made_of_one_source() {
    let studio = Studio::open().await;
    let presets = [
        ("h264_480p", "mp4"),
        ("h264_720p", "mp4"),
        ("h264_1080p", "mp4"),
        ("remux_mp4", "mp4"),
        ("aac_128k", "m4a"),
        ("mp3_192k", "mp3"),
        ("opus_96k", "ogg"),
        ("flac", "flac"),
        ("thumbnail_jpg", "jpg"),
    ];
    let asked = presets.map(
        |(preset, ending)| json!({"name": preset, "path": format!("{preset}.{ending}"), "preset": preset}),
    );
    let heard = Mutex::new(Vec::new());
    let set = studio
        .make_within(&clip(), asked.to_vec().into(), &Caps::default(), &|at| {
            heard.lock().unwrap().push(at.percent);
        })
        .await
        .unwrap();
    for (made, (preset, ending)) in set.made.iter().zip(presets) {
        assert_eq!(made.files.len(), 1);
        assert_eq!(made.files[0].name, format!("{preset}.{ending}"));
        assert_eq!(made.size_bytes, fs::metadata(&made.files[0].path).unwrap().len());
        if preset.starts_with("h264") {
            let video = made.video.as_ref().unwrap();
            assert_eq!((video.width, video.height), (320, 180), "{preset}: nothing is upscaled");
        }
        if made.container == Container::Mp4 {
            let bytes = fs::read(&made.files[0].path).unwrap();
            let at = |what: &[u8]| bytes.windows(4).position(|window| window == what).unwrap();
            assert!(at(b"moov") < at(b"mdat"), "{preset}: its index stands in front");
        }
    }
    let heard = heard.into_inner().unwrap();
    assert!(heard.windows(2).all(|pair| pair[0] <= pair[1]), "{heard:?}");
    assert_eq!(heard.last(), Some(&100.0));
}

#[tokio::test]
async fn other_codecs_and_rates_are_made_as_asked() {
    let studio = Studio::open().await;
    let set = studio
        .make(
            &clip(),
            json!([
                {"name": "hevc", "path": "a.mp4", "container": "mp4", "video": {"codec": "hevc", "height": 90}},
                {"name": "vp9", "path": "b.webm", "container": "webm",
                 "video": {"codec": "vp9", "width": 160, "crf": 40, "fps": 10},
                 "audio": {"codec": "opus", "channels": 1, "bitrate_kbps": 32}},
                {"name": "av1", "path": "c.mkv", "container": "mkv", "video": {"codec": "av1", "height": 90},
                 "audio": {"codec": "none"}},
                {"name": "rate", "path": "d.mp4", "preset": "h264_480p",
                 "video": {"bitrate_kbps": 200, "max_bitrate_kbps": 300}, "audio": {"sample_rate": 22050}},
            ]),
        )
        .await
        .unwrap();
    let facts: Vec<_> = set
        .made
        .iter()
        .map(|made| {
            let video = made.video.as_ref().unwrap();
            (
                video.codec.as_str(),
                video.width,
                video.height,
                made.audio.as_ref().map(|audio| audio.codec.as_str()),
            )
        })
        .collect();
    let expected = [
        ("hevc", 160, 90, Some("aac")),
        ("vp9", 160, 90, Some("opus")),
        ("av1", 160, 90, None),
        ("h264", 320, 180, Some("aac")),
    ];
    assert_eq!(facts, expected);
    assert_eq!(probed(&set.made[0].files[0].path, "stream=codec_tag_string").lines().next(), Some("hvc1"));
    assert_eq!(set.made[1].video.as_ref().unwrap().fps, Some(10.0));
    assert_eq!(set.made[1].audio.as_ref().unwrap().channels, Some(1));
    assert_eq!(set.made[3].audio.as_ref().unwrap().sample_rate, Some(22050));
    assert!(set.made[3].bitrate_kbps.unwrap() < 600, "{:?}", set.made[3]);
}

/// The names in a playlist, beside it.
fn named(playlist: &Path) -> Vec<String> {
    let text = fs::read_to_string(playlist).unwrap();
    let map = text
        .lines()
        .filter_map(|line| line.strip_prefix("#EXT-X-MAP:URI=\""))
        .map(|it| it.trim_end_matches('"'));
    map.chain(text.lines().filter(|line| !line.starts_with('#'))).map(str::to_owned).collect()
}

#[tokio::test]
async fn hls_is_one_playlist_or_a_ladder_and_names_exactly_its_files() {
    let studio = Studio::open().await;
    let source = media(
        "long.mp4",
        "-f lavfi -i testsrc2=s=640x360:r=25:d=5 -f lavfi -i sine=d=5 -c:v libx264 -preset ultrafast -pix_fmt yuv420p -c:a aac -f mp4",
    );
    let renditions = json!([{"height": 720, "bitrate_kbps": 900}, {"height": 360, "bitrate_kbps": 400},
                            {"height": 180, "bitrate_kbps": 150}]);
    for (segment_type, ending) in [("mpegts", "ts"), ("fmp4", "m4s")] {
        let hls = json!({"segment_seconds": 2, "segment_type": segment_type});
        let ladder = json!({"segment_seconds": 2, "segment_type": segment_type, "renditions": renditions});
        let set = studio
            .make(
                &source,
                json!([{"name": "one", "path": "one/it is.m3u8", "container": "hls", "hls": hls},
                       {"name": "many", "path": "many/index.m3u8", "preset": "hls_ladder", "hls": ladder}]),
            )
            .await
            .unwrap();
        let [one, many] = &set.made[..] else { panic!("two") };
        assert!((one.duration_seconds.unwrap() - 5.0).abs() < 0.5);
        let names: Vec<_> = one.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names.last(), Some(&"one/it is.m3u8"), "the playlist comes after its segments");
        assert!(names.contains(&format!("one/it is_00002.{ending}").as_str()), "{names:?}");
        let listed: Vec<_> = named(&one.files.last().unwrap().path)
            .iter()
            .map(|name| format!("one/{}", name.replace("%20", " ")))
            .collect();
        assert_eq!(listed, names[..names.len() - 1]);

        let names: Vec<_> = many.files.iter().map(|file| file.name.as_str()).collect();
        let count = names.len();
        assert_eq!(names[count - 3..], ["many/index_360p.m3u8", "many/index_180p.m3u8", "many/index.m3u8"]);
        assert_eq!(
            named(&many.files[count - 1].path),
            ["index_360p.m3u8", "index_180p.m3u8"],
            "720 would be upscaled"
        );
        let master = fs::read_to_string(&many.files[count - 1].path).unwrap();
        for word in
            ["RESOLUTION=640x360", "RESOLUTION=320x180", "CODECS=\"avc1.64", "mp4a.40.2", "FRAME-RATE=25.000"]
        {
            assert!(master.contains(word), "{word}: {master}");
        }
        let listed: BTreeSet<String> = many.files[count - 3..count - 1]
            .iter()
            .flat_map(|file| named(&file.path))
            .map(|name| format!("many/{name}"))
            .collect();
        let segments: BTreeSet<String> = names[..count - 3].iter().map(ToString::to_string).collect();
        assert_eq!(listed, segments);
        // As a player would see it: published under these names, it plays.
        let public = studio.root.path().join(segment_type);
        for file in &many.files {
            let path = public.join(&file.name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::copy(&file.path, path).unwrap();
        }
        let played = probed(&public.join("many/index.m3u8"), "stream=codec_name");
        assert!(played.contains("h264") && played.contains("aac"), "{played}");
        // Every segment of every rendition can be decoded to its end.
        for playlist in ["index_360p.m3u8", "index_180p.m3u8"] {
            let decoded = std::process::Command::new("ffmpeg")
                .args(["-v", "error", "-nostdin", "-xerror", "-i"])
                .arg(public.join("many").join(playlist))
                .args(["-f", "null", "-"])
                .output()
                .unwrap();
            assert!(decoded.status.success() && decoded.stderr.is_empty(), "{playlist}: {decoded:?}");
        }
    }
}

#[tokio::test]
async fn odd_sources_become_even_outputs() {
    let studio = Studio::open().await;
    let of = |name: &str, arguments: &str| media(name, arguments);
    let encode = "-c:v libx264 -preset ultrafast";
    let turned = studio.root.path().join("turned.mp4");
    let status = std::process::Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-i"])
        .arg(clip())
        .args(["-metadata:s:v", "rotate=90", "-c", "copy"])
        .arg(&turned)
        .status();
    assert!(status.unwrap().success());
    for (path, shown, made) in [
        (of("uneven.mkv", "-f lavfi -i testsrc=s=321x181:d=1 -c:v ffv1 -f matroska"), (321, 181), (320, 180)),
        (
            of(
                "ten.mkv",
                &format!("-f lavfi -i testsrc2=s=320x180:d=1 {encode} -pix_fmt yuv420p10le -f matroska"),
            ),
            (320, 180),
            (320, 180),
        ),
        (
            of(
                "wide.mkv",
                &format!(
                    "-f lavfi -i testsrc2=s=320x180:d=1 -vf setsar=2 {encode} -pix_fmt yuv420p -f matroska"
                ),
            ),
            (320, 90),
            (320, 90),
        ),
        (
            of(
                "variable.mkv",
                &format!(
                    "-f lavfi -i testsrc2=s=320x180:r=25:d=2 -vf select=not(mod(n\\,7))+lt(n\\,20) -fps_mode vfr {encode} -pix_fmt yuv420p -f matroska"
                ),
            ),
            (320, 180),
            (320, 180),
        ),
        (turned, (180, 320), (180, 320)),
    ] {
        let found = studio.inspect(&path, &Caps::default()).await.unwrap();
        let video = found.facts.video.unwrap();
        assert_eq!((video.width, video.height), shown, "{path:?}");
        // Also a source without sound has a video, made without sound.
        let asked = json!([{"name": "v", "path": "v.mp4", "preset": "h264_480p"},
                           {"name": "s", "path": "s.jpg", "preset": "thumbnail_jpg"}]);
        let set = studio.make(&path, asked).await.unwrap_or_else(|error| panic!("{path:?}: {error}"));
        for output in &set.made {
            let video = output.video.as_ref().unwrap();
            assert_eq!((video.width, video.height), made, "{path:?}");
        }
        let format = probed(&set.made[0].files[0].path, "stream=pix_fmt");
        assert_eq!(format.lines().next(), Some("yuv420p"), "{path:?}");
    }
}

#[tokio::test]
async fn clips_stills_and_loudness_are_as_asked() {
    let studio = Studio::open().await;
    let set = studio
        .make(
            &clip(),
            json!([
                {"name": "clip", "path": "clip.mp4", "preset": "h264_480p",
                 "clip": {"start_seconds": 0.5, "duration_seconds": 1}},
                {"name": "stills", "path": "stills/%03d.jpg", "preset": "thumbnail_jpg", "thumbnails": {"count": 3, "width": 64}},
                {"name": "last", "path": "last.jpg", "preset": "thumbnail_jpg", "thumbnails": {"at_seconds": 2}},
                {"name": "loud", "path": "loud.m4a", "preset": "aac_128k",
                 "audio": {"loudness": {"target_lufs": -30, "true_peak_db": -2}}},
            ]),
        )
        .await
        .unwrap();
    assert!((set.made[0].duration_seconds.unwrap() - 1.0).abs() < 0.1, "{:?}", set.made[0]);
    let names: Vec<_> = set.made[1].files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["stills/001.jpg", "stills/002.jpg", "stills/003.jpg"]);
    let pictures: BTreeSet<_> = set.made[1].files.iter().map(|file| fs::read(&file.path).unwrap()).collect();
    assert_eq!(pictures.len(), 3, "three moments");
    assert_eq!(set.made[1].video.as_ref().map(|video| (video.width, video.height)), Some((64, 36)));
    assert_eq!(set.made[2].files.len(), 1);
    let measure = std::process::Command::new("ffmpeg")
        .args(["-nostdin", "-i"])
        .arg(&set.made[3].files[0].path)
        .args(["-af", "ebur128", "-f", "null", "-"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&measure.stderr).into_owned();
    let loudness: f64 = said.rsplit("I:").next().unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!((loudness + 30.0).abs() < 1.0, "{loudness}");
    assert_eq!(set.made[3].audio.as_ref().unwrap().sample_rate, Some(44100));
}

#[tokio::test]
async fn what_a_source_does_not_have_is_refused_before_anything_runs() {
    let studio = Studio::open().await;
    let sound = media("a.mp3", &format!("{TWO_SECONDS} -map 1 -f mp3"));
    let pictures = media("silent.mp4", "-f lavfi -i testsrc2=s=320x180:d=1 -c:v mpeg4 -f mp4");
    let webm = media(
        "a.webm",
        &format!("{TWO_SECONDS} -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -c:a libopus -f webm"),
    );
    let video = |preset: &str| json!([{"name": "v", "path": "v", "preset": preset}]);
    let clipped =
        json!([{"name": "v", "path": "v.mp4", "preset": "h264_480p", "clip": {"start_seconds": 60}}]);
    let hls = json!([{"name": "v", "path": "v.m3u8", "container": "hls", "video": {"codec": "copy"}, "audio": {"codec": "none"}}]);
    for (path, asked, code) in [
        (&sound, video("h264_720p"), "media_no_streams"),
        (&sound, video("thumbnail_jpg"), "media_no_streams"),
        (&pictures, video("mp3_192k"), "media_no_streams"),
        (&clip(), clipped, "media_no_streams"),
        (&webm, hls, "media_unsupported_format"),
        (
            &sources()[4].0,
            json!([{"name": "w", "path": "w.webm", "container": "webm", "video": {"codec": "copy"}}]),
            "media_unsupported_format",
        ),
    ] {
        let error = studio.make(path, asked.clone()).await.unwrap_err();
        assert_eq!(error.code, code, "{asked}: {error}");
    }
    assert!(studio.ffmpeg.has("h264") && !studio.ffmpeg.has("copy"));
}
