//! HLS playlists. ffmpeg writes them over names of its own; what is published is written here, over the requester's.

use std::fmt::Write;

/// A playlist of segments, as far as it matters.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct MediaPlaylist {
    pub(super) version: u32,
    pub(super) target_seconds: u32,
    /// The file that every segment needs, of fragmented mp4.
    pub(super) init: Option<String>,
    pub(super) segments: Vec<Segment>,
    pub(super) is_ended: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Segment {
    pub(super) seconds: f64,
    pub(super) file: String,
}

/// One line of a master playlist.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Variant {
    pub(super) file: String,
    /// Bits a second, at the worst segment and on average.
    pub(super) peak: u64,
    pub(super) average: u64,
    pub(super) size: Option<(u32, u32)>,
    pub(super) fps: Option<f64>,
    pub(super) codecs: Option<String>,
}

impl MediaPlaylist {
    /// Reads what ffmpeg wrote; `None` when it is no playlist.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        (lines.next()? == "#EXTM3U").then_some(())?;
        let (mut playlist, mut seconds) = (Self::default(), None);
        for line in lines {
            if let Some(length) = line.strip_prefix("#EXTINF:") {
                seconds = length.trim_end_matches(',').parse().ok();
            } else if let Some(version) = line.strip_prefix("#EXT-X-VERSION:") {
                playlist.version = version.parse().ok()?;
            } else if let Some(target) = line.strip_prefix("#EXT-X-TARGETDURATION:") {
                playlist.target_seconds = target.parse().ok()?;
            } else if let Some(init) = line.strip_prefix("#EXT-X-MAP:URI=\"") {
                playlist.init = Some(init.trim_end_matches('"').to_owned());
            } else if line == "#EXT-X-ENDLIST" {
                playlist.is_ended = true;
            } else if !line.starts_with('#') {
                playlist.segments.push(Segment { seconds: seconds.take()?, file: line.to_owned() });
            }
        }
        Some(playlist)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.segments.iter().map(|segment| segment.seconds).sum()
    }

    /// Writes it with each name replaced.
    pub(super) fn write(&self, name: impl Fn(&str) -> String) -> String {
        let mut text = format!(
            "#EXTM3U\n#EXT-X-VERSION:{}\n#EXT-X-TARGETDURATION:{}\n#EXT-X-MEDIA-SEQUENCE:0\n\
             #EXT-X-PLAYLIST-TYPE:VOD\n#EXT-X-INDEPENDENT-SEGMENTS\n",
            self.version.max(6),
            self.target_seconds
        );
        if let Some(init) = &self.init {
            let _ = writeln!(text, "#EXT-X-MAP:URI=\"{}\"", uri(&name(init)));
        }
        for segment in &self.segments {
            let _ = writeln!(text, "#EXTINF:{:.6},\n{}", segment.seconds, uri(&name(&segment.file)));
        }
        text + "#EXT-X-ENDLIST\n"
    }
}

/// The playlist of playlists.
pub(super) fn master(variants: &[Variant], version: u32) -> String {
    let mut text = format!("#EXTM3U\n#EXT-X-VERSION:{}\n#EXT-X-INDEPENDENT-SEGMENTS\n", version.max(6));
    for variant in variants {
        let _ = write!(
            text,
            "#EXT-X-STREAM-INF:BANDWIDTH={},AVERAGE-BANDWIDTH={}",
            variant.peak, variant.average
        );
        if let Some((width, height)) = variant.size {
            let _ = write!(text, ",RESOLUTION={width}x{height}");
        }
        if let Some(codecs) = &variant.codecs {
            let _ = write!(text, ",CODECS=\"{codecs}\"");
        }
        if let Some(fps) = variant.fps {
            let _ = write!(text, ",FRAME-RATE={fps:.3}");
        }
        let _ = writeln!(text, "\n{}", uri(&variant.file));
    }
    text
}

/// RFC 6381, for the codecs that we make.
pub(super) fn codec_name(codec: &str, profile: &str, level: Option<i64>) -> Option<String> {
    let level = u8::try_from(level.unwrap_or(0)).ok()?;
    Some(match codec {
        "h264" => {
            let profile = match profile {
                "High" => "6400",
                "Main" => "4d40",
                "Constrained Baseline" => "42e0",
                "Baseline" => "4200",
                _ => return None,
            };
            format!("avc1.{profile}{level:02x}")
        }
        "hevc" if profile == "Main" => format!("hvc1.1.6.L{level}.90"),
        "aac" => "mp4a.40.2".to_owned(),
        "mp3" => "mp4a.40.34".to_owned(),
        "ac3" => "ac-3".to_owned(),
        "eac3" => "ec-3".to_owned(),
        _ => return None,
    })
}

/// A name as a relative uri: everything but letters, digits and `-._~` is escaped.
fn uri(name: &str) -> String {
    name.bytes().fold(String::new(), |mut uri, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
        uri
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_playlist_is_published_over_other_names() {
        let text = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:4\n#EXT-X-MAP:URI=\"r0_init.mp4\"\n\
                    #EXTINF:4.000000,\nr0_00000.m4s\n#EXTINF:1.500000,\nr0_00001.m4s\n#EXT-X-ENDLIST\n";
        let playlist = MediaPlaylist::read(text).expect("a playlist");
        assert!((playlist.seconds() - 5.5).abs() < 1e-9 && playlist.is_ended);
        let published = playlist.write(|file| file.replace("r0", "a b#1"));
        assert!(published.contains("URI=\"a%20b%231_init.mp4\"\n"), "{published}");
        assert!(published.contains("#EXTINF:1.500000,\na%20b%231_00001.m4s\n"), "{published}");
        assert_eq!(MediaPlaylist::read(&published).map(|it| it.segments.len()), Some(2));
        assert_eq!(MediaPlaylist::read("hello"), None);
    }

    #[test]
    fn a_master_tells_what_a_player_must_know() {
        let variant = Variant {
            file: "index_720p.m3u8".into(),
            peak: 3_000_000,
            average: 2_500_000,
            size: Some((1280, 720)),
            fps: Some(25.0),
            codecs: codec_name("h264", "High", Some(31)),
        };
        let expected = "#EXT-X-STREAM-INF:BANDWIDTH=3000000,AVERAGE-BANDWIDTH=2500000,RESOLUTION=1280x720,\
                        CODECS=\"avc1.64001f\",FRAME-RATE=25.000\nindex_720p.m3u8\n";
        assert!(master(&[variant], 3).ends_with(expected));
    }
}
