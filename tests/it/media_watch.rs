//! Contract §11, R48–R53: the cage, the limits, and the end of every ffmpeg.
