//! The words a request may use for codecs, containers and presets.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One of a closed list of words.
pub(super) trait Word: Copy + 'static {
    const ALL: &'static [Self];
    fn as_str(self) -> &'static str;
}

// A word is a `tt`, because utoipa does not see a rename to a `literal`.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:tt,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// How each is written.
            pub const NAMES: &'static [&'static str] = &[$($word,)+];
        }

        impl Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(Word::as_str(*self))
            }
        }
    };
}

words! {
    /// Outputs by name. Inline fields override what a preset says.
    Preset {
        /// mp4, H.264 of 480 lines, AAC.
        H264_480p = "h264_480p",
        /// mp4, H.264 of 720 lines, AAC.
        H264_720p = "h264_720p",
        /// mp4, H.264 of 1080 lines, AAC.
        H264_1080p = "h264_1080p",
        /// HLS with a master playlist and renditions of 1080, 720, 480 and 360 lines.
        HlsLadder = "hls_ladder",
        /// mp4 with the streams as they are: nothing is encoded.
        RemuxMp4 = "remux_mp4",
        /// m4a, AAC of 128 kbit/s.
        Aac128k = "aac_128k",
        /// mp3 of 192 kbit/s.
        Mp3_192k = "mp3_192k",
        /// ogg, Opus of 96 kbit/s.
        Opus96k = "opus_96k",
        /// flac, lossless.
        Flac = "flac",
        /// One JPEG from a tenth of the way in.
        ThumbnailJpg = "thumbnail_jpg",
    }
}

words! {
    /// What an output is wrapped in.
    Container {
        /// MPEG-4, with its index in front.
        Mp4 = "mp4",
        /// WebM.
        Webm = "webm",
        /// Matroska.
        Mkv = "mkv",
        /// HTTP Live Streaming: a playlist and its segments.
        Hls = "hls",
        /// MPEG-4 with audio only.
        M4a = "m4a",
        /// MPEG audio.
        Mp3 = "mp3",
        /// Ogg.
        Ogg = "ogg",
        /// FLAC.
        Flac = "flac",
        /// JPEG pictures.
        Jpg = "jpg",
    }
}

words! {
    /// How pictures are encoded.
    VideoCodec {
        /// H.264.
        H264 = "h264",
        /// H.265.
        Hevc = "hevc",
        /// AV1.
        Av1 = "av1",
        /// VP9.
        Vp9 = "vp9",
        /// As they are in the source.
        Copy = "copy",
        /// Without pictures.
        None = "none",
    }
}

words! {
    /// How sound is encoded.
    AudioCodec {
        /// AAC.
        Aac = "aac",
        /// MP3.
        Mp3 = "mp3",
        /// Opus.
        Opus = "opus",
        /// FLAC.
        Flac = "flac",
        /// As it is in the source.
        Copy = "copy",
        /// Without sound.
        None = "none",
    }
}

words! {
    /// What HLS segments are wrapped in.
    SegmentType {
        /// MPEG transport stream: plays everywhere.
        Mpegts = "mpegts",
        /// Fragmented mp4: needed for HEVC.
        Fmp4 = "fmp4",
    }
}

words! {
    /// Where outputs are put (design §5.16).
    OutputLayout {
        /// Exactly at `output_prefix` + `path`.
        Exact = "exact",
        /// Each claim under a directory of its own, so that a stale worker can overwrite nothing.
        PerClaim = "per_claim",
    }
}
