//! How large pictures become: at most as asked, never larger than they are, with the same shape and even sides.

/// Of pictures that are shown as `shown`, the size within the bounds.
pub(super) fn fit(shown: (u32, u32), width: Option<u32>, height: Option<u32>) -> (u32, u32) {
    let (wide, high) = (f64::from(shown.0), f64::from(shown.1));
    let bound = |asked: Option<u32>, side: f64| asked.map_or(1.0, |asked| f64::from(asked) / side);
    let factor = bound(width, wide).min(bound(height, high)).min(1.0);
    let most = |shown: u32, asked: Option<u32>| asked.unwrap_or(shown).min(shown);
    (even(wide * factor, most(shown.0, width)), even(high * factor, most(shown.1, height)))
}

/// The even number nearest to `side` and not above `most`; at least 2, which is the least an encoder takes.
fn even(side: f64, most: u32) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it only shrank from a u32
    let near = (side / 2.0).round() as u32 * 2;
    if near > most { near.saturating_sub(2).max(2) } else { near.max(2) }
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn pictures_only_ever_shrink_and_keep_their_shape() {
        assert_eq!(fit((1920, 1080), None, Some(720)), (1280, 720));
        assert_eq!(fit((1920, 1080), Some(640), None), (640, 360));
        assert_eq!(fit((320, 180), None, Some(1080)), (320, 180));
        assert_eq!(fit((1080, 1920), Some(640), Some(640)), (360, 640));
        assert_eq!(fit((321, 181), None, None), (320, 180));
        assert_eq!(fit((1, 1), None, None), (2, 2));
        assert_eq!(fit((4000, 10), Some(100), None), (100, 2));
        assert_eq!(fit((853, 480), None, Some(360)), (640, 360));
    }
}
