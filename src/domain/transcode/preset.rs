//! What the presets stand for: outputs with some fields filled in, over which a request lays its own.

use super::request::{
    AudioRequest, HlsRequest, OutputRequest, RenditionRequest, ThumbnailsRequest, VideoRequest,
};
use super::words::{AudioCodec, Container, Preset, VideoCodec};

/// The fields that `preset` fills in.
pub(super) fn recipe(preset: Preset) -> OutputRequest {
    match preset {
        Preset::H264_480p => h264(480),
        Preset::H264_720p => h264(720),
        Preset::H264_1080p => h264(1080),
        Preset::HlsLadder => hls_ladder(),
        Preset::RemuxMp4 => of(Container::Mp4, Some(VideoCodec::Copy), Some(audio(AudioCodec::Copy, None))),
        Preset::Aac128k => of(Container::M4a, None, Some(audio(AudioCodec::Aac, Some(128)))),
        Preset::Mp3_192k => of(Container::Mp3, None, Some(audio(AudioCodec::Mp3, Some(192)))),
        Preset::Opus96k => of(Container::Ogg, None, Some(audio(AudioCodec::Opus, Some(96)))),
        Preset::Flac => of(Container::Flac, None, Some(audio(AudioCodec::Flac, None))),
        Preset::ThumbnailJpg => OutputRequest {
            thumbnails: Some(ThumbnailsRequest {
                count: Some(1),
                width: Some(640),
                ..ThumbnailsRequest::default()
            }),
            ..of(Container::Jpg, None, None)
        },
    }
}

fn of(container: Container, video: Option<VideoCodec>, audio: Option<AudioRequest>) -> OutputRequest {
    let video = video.map(|codec| VideoRequest { codec: Some(codec), ..VideoRequest::default() });
    OutputRequest { container: Some(container), video, audio, ..OutputRequest::default() }
}

fn audio(codec: AudioCodec, bitrate_kbps: Option<u32>) -> AudioRequest {
    AudioRequest { codec: Some(codec), bitrate_kbps, ..AudioRequest::default() }
}

fn h264(height: u32) -> OutputRequest {
    let video = VideoRequest {
        codec: Some(VideoCodec::H264),
        height: Some(height),
        crf: Some(23),
        ..VideoRequest::default()
    };
    OutputRequest { video: Some(video), ..of(Container::Mp4, None, Some(audio(AudioCodec::Aac, Some(128)))) }
}

/// Bitrates as Apple's authoring guide has them for H.264 at up to 30 pictures a second, rounded.
fn hls_ladder() -> OutputRequest {
    let rungs = [(1080, 5000, 128), (720, 2800, 128), (480, 1400, 96), (360, 800, 96)];
    let renditions = rungs.map(|(height, bitrate_kbps, sound)| RenditionRequest {
        height,
        bitrate_kbps,
        audio_bitrate_kbps: Some(sound),
    });
    OutputRequest {
        hls: Some(HlsRequest { renditions: Some(renditions.into()), ..HlsRequest::default() }),
        ..of(Container::Hls, Some(VideoCodec::H264), Some(audio(AudioCodec::Aac, None)))
    }
}
