//! The first look at a source, before any program of others sees it: what its first bytes say it is. Text is never media:
//! playlists, concat scripts and session descriptions make ffmpeg open other files and urls.

use super::MediaError;

/// As much of a source is looked at.
pub(super) const HEAD: usize = 4096;

/// What a source seems to be: the demuxers of ffmpeg that may read it, and no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sniffed {
    pub(super) demuxers: &'static str,
}

const MOV: &str = "mov,mp4,m4a,3gp,3g2,mj2";

/// What `head`, the beginning of a source, says.
pub(super) fn sniff(head: &[u8]) -> Result<Sniffed, MediaError> {
    if head.is_empty() {
        return Err(MediaError::new("media_unreadable", "the source is empty"));
    }
    let refused = || MediaError::new("media_unsupported_format", "the source is in no format that we take");
    demuxers(head).map(|demuxers| Sniffed { demuxers }).ok_or_else(refused)
}

fn demuxers(head: &[u8]) -> Option<&'static str> {
    let at = |offset: usize, magic: &[u8]| head.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    let riff = |kind: &[u8]| at(0, b"RIFF") && at(8, kind);
    Some(match head {
        _ if is_mov(head) => MOV,
        _ if at(0, &[0x1a, 0x45, 0xdf, 0xa3]) => "matroska,webm",
        _ if riff(b"AVI ") => "avi",
        _ if riff(b"WAVE") || (at(0, b"RF64") && at(8, b"WAVE")) => "wav",
        _ if at(0, b"riff\x2e\x91\xcf\x11") => "w64",
        _ if at(0, b"FLV\x01") => "flv",
        _ if at(0, &[0x30, 0x26, 0xb2, 0x75, 0x8e, 0x66, 0xcf, 0x11]) => "asf",
        _ if at(0, b"fLaC") => "flac",
        _ if at(0, b"OggS") => "ogg",
        _ if at(0, b"FORM") && (at(8, b"AIFF") || at(8, b"AIFC")) => "aiff",
        _ if at(0, b"#!AMR") => "amr",
        // A tag that may stand before each of these.
        _ if at(0, b"ID3") => "mp3,aac,flac",
        _ if at(0, &[0, 0, 1, 0xba]) => "mpeg",
        _ if is_transport_stream(head) => "mpegts",
        _ if is_adts(head) => "aac",
        _ if is_mpeg_audio(head) => "mp3",
        _ => return None,
    })
}

/// A box of a kind that stands first in files of this family.
fn is_mov(head: &[u8]) -> bool {
    let kinds: [&[u8]; 7] = [b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"];
    head.get(4..8).is_some_and(|kind| kinds.contains(&kind))
}

/// 0x47 every 188 bytes, or every 192 with a timestamp before it.
fn is_transport_stream(head: &[u8]) -> bool {
    [(0, 188), (4, 192)].into_iter().any(|(first, step)| {
        let marks: Vec<_> = head.iter().skip(first).step_by(step).take(4).collect();
        marks.len() >= 2 && marks.iter().all(|mark| **mark == 0x47)
    })
}

fn is_adts(head: &[u8]) -> bool {
    head.len() > 6 && head[0] == 0xff && head[1] & 0xf6 == 0xf0
}

/// A frame's sync word with a layer, a bitrate and a sample rate that exist.
fn is_mpeg_audio(head: &[u8]) -> bool {
    head.len() > 3
        && head[0] == 0xff
        && head[1] & 0xe0 == 0xe0
        && head[1] & 0x18 != 0x08
        && head[1] & 0x06 != 0
        && !matches!(head[2] >> 4, 0 | 15)
        && head[2] & 0x0c != 0x0c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_media() {
        for text in [
            "#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
            "ffconcat version 1.0\nfile other.ts\n",
            "<?xml version=\"1.0\"?><MPD/>",
            "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\n",
            "[playlist]\nFile1=x\n",
            "RIFF but nothing of that kind",
            "GIF89a",
            "\u{feff}#EXTM3U",
        ] {
            let code = sniff(text.as_bytes()).map_err(|error| error.code);
            assert_eq!(code, Err("media_unsupported_format"), "{text}");
        }
        assert_eq!(sniff(b"").map_err(|error| error.code), Err("media_unreadable"));
    }

    #[test]
    fn a_kind_is_read_by_its_own_demuxers_only() {
        assert_eq!(sniff(b"\0\0\0\x18ftypisom").map(|it| it.demuxers), Ok(MOV));
        assert_eq!(sniff(&[0xff, 0xf1, 0x50, 0x80, 0, 0, 0, 0]).map(|it| it.demuxers), Ok("aac"));
        assert_eq!(sniff(&[0xff, 0xfb, 0x90, 0x64, 0, 0]).map(|it| it.demuxers), Ok("mp3"));
        let mut stream = [0u8; 600];
        for mark in [0, 188, 376, 564] {
            stream[mark] = 0x47;
        }
        assert_eq!(sniff(&stream).map(|it| it.demuxers), Ok("mpegts"));
    }
}
