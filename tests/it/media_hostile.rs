//! Contract §11, R44–R50: media that was made to hurt. Each is refused with a clear code, nothing else is read, nothing is
//! left behind.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use euterpe::media::Caps;
use serde_json::json;

use crate::support::studio::{CLIP, Studio, TWO_SECONDS, clip, media};

/// A file of these bytes.
fn written(studio: &Studio, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = studio.root.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// What begins like an mp4 for whoever looks at its beginning only, and is a playlist for whoever searches on.
fn disguised(text: &str) -> Vec<u8> {
    [b"\0\0\0\x18ftypisom\0\0\x02\0isomiso2".as_slice(), text.as_bytes()].concat()
}

/// A playlist behind a tag of ID3, which ffmpeg skips before it looks.
fn tagged(text: &str) -> Vec<u8> {
    [b"ID3\x03\0\0\0\0\0\x0a".as_slice(), &[0; 10], text.as_bytes()].concat()
}

#[tokio::test]
async fn playlists_reach_neither_files_nor_addresses() {
    let studio = Studio::open().await;
    let others = media(
        "a.ts",
        &format!("{TWO_SECONDS} -c:v libx264 -preset ultrafast -pix_fmt yuv420p -c:a aac -f mpegts"),
    );
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let (other, port) = (others.display(), silent.local_addr().unwrap().port());
    let texts = [
        format!("#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:2,\nfile://{other}\n#EXT-X-ENDLIST\n"),
        format!(
            "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:2,\nhttp://127.0.0.1:{port}/a.ts\n#EXT-X-ENDLIST\n"
        ),
        format!("ffconcat version 1.0\nfile '{other}'\n"),
        format!(
            "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP 96\na=rtpmap:96 H264/90000\n"
        ),
        format!(
            "<?xml version=\"1.0\"?><MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\"><BaseURL>file://{other}</BaseURL></MPD>"
        ),
    ];
    for (nth, text) in texts.iter().enumerate() {
        let plain = written(&studio, &format!("plain{nth}"), text);
        assert_eq!(studio.refusal(&plain, &Caps::default()).await, "media_unsupported_format", "{text}");
        let tagged = written(&studio, &format!("tagged{nth}"), tagged(text));
        let is_mpd = text.contains("<MPD"); // which this ffmpeg does not take for one, behind a tag
        let expected = if is_mpd { "media_unreadable" } else { "media_unsupported_format" };
        assert_eq!(studio.refusal(&tagged, &Caps::default()).await, expected, "{text}");
        let hidden = written(&studio, &format!("hidden{nth}"), disguised(text));
        let code = studio.refusal(&hidden, &Caps::default()).await;
        assert!(matches!(code, "media_unreadable" | "media_unsupported_format"), "{code}: {text}");
    }
    assert!(silent.accept().is_err(), "nobody called");
}

#[tokio::test]
async fn what_is_no_media_is_refused_with_a_clear_code() {
    let studio = Studio::open().await;
    let whole = fs::read(clip()).unwrap();
    let noise: Vec<u8> = (0..100_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
    let begins_well = [&whole[..64], &noise].concat();
    for (name, bytes, code) in [
        ("empty", Vec::new(), "media_unreadable"),
        ("noise", noise.clone(), "media_unsupported_format"),
        ("cut", whole[..whole.len() / 2].to_vec(), "media_unreadable"),
        ("begins_well", begins_well, "media_unreadable"),
        ("png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(), "media_unsupported_format"),
    ] {
        let path = written(&studio, name, bytes);
        assert_eq!(studio.refusal(&path, &Caps::default()).await, code, "{name}");
    }
    studio.ffmpeg.idle().await;
    let left: Vec<_> = fs::read_dir(studio.root.path())
        .unwrap()
        .map(|it| it.unwrap().path())
        .filter(|it| it.is_dir())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A source whose index stands in front and whose end is missing: the probe sees a whole film.
#[tokio::test]
async fn a_source_that_was_cut_off_makes_no_output() {
    let studio = Studio::open().await;
    let whole = media("front.mp4", &format!("{TWO_SECONDS} {CLIP} -movflags +faststart"));
    let whole = fs::read(whole).unwrap();
    let cut = written(&studio, "cut", &whole[..whole.len() * 2 / 3]);
    for preset in ["h264_480p", "remux_mp4"] {
        let error =
            studio.make(&cut, json!([{"name": "v", "path": "v.mp4", "preset": preset}])).await.unwrap_err();
        assert!(matches!(error.code, "encode_failed" | "output_invalid"), "{preset}: {error}");
        assert!(!error.message.contains(studio.root.path().to_str().unwrap()), "{error}");
    }
}

/// Motion JPEG whose pictures say that they have `side` × `side` pixels.
fn large(studio: &Studio, side: u16) -> PathBuf {
    let small = media("mjpeg.avi", "-f lavfi -i testsrc2=s=320x180:d=1 -c:v mjpeg -pix_fmt yuvj420p -f avi");
    let mut bytes = fs::read(small).unwrap();
    for at in 0..bytes.len() - 9 {
        if bytes[at..at + 5] == [0xff, 0xc0, 0, 17, 8] {
            bytes[at + 5..at + 7].copy_from_slice(&side.to_be_bytes());
            bytes[at + 7..at + 9].copy_from_slice(&side.to_be_bytes());
        }
        // The container says so too.
        if &bytes[at..at + 4] == b"strf" {
            for field in [at + 12, at + 16] {
                bytes[field..field + 4].copy_from_slice(&u32::from(side).to_le_bytes());
            }
        }
    }
    written(studio, "large", bytes)
}

/// A matroska of so many tracks, by hand: ffmpeg itself makes no more than a thousand.
fn matroska(tracks: u16) -> Vec<u8> {
    fn element(id: &[u8], inside: &[u8]) -> Vec<u8> {
        let size = (inside.len() as u64 | 1 << 56).to_be_bytes();
        [id, &size, inside].concat()
    }
    let head = element(&[0x1a, 0x45, 0xdf, 0xa3], &element(&[0x42, 0x82], b"matroska"));
    let track = |n: u16| {
        let sound = element(&[0xe1], &element(&[0x9f], &[1]));
        let number = n.to_be_bytes();
        let parts = [
            element(&[0xd7], &number),
            element(&[0x73, 0xc5], &number),
            element(&[0x83], &[2]),
            element(&[0x86], b"A_PCM/INT/LIT"),
            sound,
        ];
        element(&[0xae], &parts.concat())
    };
    let all = element(&[0x16, 0x54, 0xae, 0x6b], &(1..=tracks).flat_map(track).collect::<Vec<_>>());
    // And one piece of sound for the first of them.
    let cluster = [element(&[0xe7], &[0]), element(&[0xa3], &[0x81, 0, 0, 0x80, 1, 2, 3, 4])].concat();
    let cluster = element(&[0x1f, 0x43, 0xb6, 0x75], &cluster);
    [head, element(&[0x18, 0x53, 0x80, 0x67], &[all, cluster].concat())].concat()
}

#[tokio::test]
async fn bombs_are_seen_before_they_go_off() {
    let studio = Studio::open().await;
    let caps = Caps::default();
    assert_eq!(studio.refusal(&large(&studio, 30_000), &caps).await, "pixel_limit");

    let streams = written(&studio, "streams", matroska(3000));
    assert_eq!(studio.refusal(&streams, &caps).await, "stream_limit");
    let some = media(
        "some.mkv",
        &format!("-f lavfi -i sine=d=0.2:r=8000 {} -c:a pcm_s16le -f matroska", "-map 0 ".repeat(17)),
    );
    assert_eq!(studio.refusal(&some, &caps).await, "stream_limit");

    let apart = media(
        "apart.mkv",
        "-f lavfi -i testsrc2=s=64x64:r=1:d=2 -vf setpts=N*36000/TB -fps_mode vfr -c:v ffv1 -f matroska",
    );
    assert_eq!(studio.refusal(&apart, &caps).await, "duration_limit");
    assert_eq!(studio.refusal(&clip(), &Caps { frames: 49, ..caps }).await, "frame_limit");
    assert_eq!(studio.refusal(&clip(), &Caps { pixels: 320 * 180 - 1, ..caps }).await, "pixel_limit");
    assert_eq!(
        studio.refusal(&clip(), &Caps { duration: Duration::from_secs(1), ..caps }).await,
        "duration_limit"
    );

    let mut slow = fs::read(media("a.wav", &format!("{TWO_SECONDS} -map 1 -f wav"))).unwrap();
    slow[24..28].copy_from_slice(&1u32.to_le_bytes());
    let slow = written(&studio, "slow", slow);
    assert!(matches!(studio.refusal(&slow, &caps).await, "media_unsupported_format" | "duration_limit"));
}

/// The same gap, within the longest that is allowed: it is made, and no pictures are made up to fill it.
#[tokio::test]
async fn a_gap_stays_a_gap() {
    let studio = Studio::open().await;
    let apart = media(
        "gap.mkv",
        "-f lavfi -i testsrc2=s=64x64:r=1:d=2 -vf setpts=N*3600/TB -fps_mode vfr -c:v mpeg4 -f matroska",
    );
    let set =
        studio.make(&apart, json!([{"name": "v", "path": "v.mp4", "preset": "h264_480p"}])).await.unwrap();
    assert!(set.made[0].size_bytes < 50_000, "{:?}", set.made[0]);
}

#[tokio::test]
async fn what_is_encrypted_is_said_to_be() {
    let studio = Studio::open().await;
    let key = "-encryption_scheme cenc-aes-ctr -encryption_key 00112233445566778899aabbccddeeff -encryption_kid 00112233445566778899aabbccddeeff";
    let sealed = media("sealed.mp4", &format!("{TWO_SECONDS} {CLIP} {key}"));
    assert_eq!(studio.refusal(&sealed, &Caps::default()).await, "media_drm");
}
