//! Contract §5, §8, §9 (receiver), §12: every transition arrives signed, in order, at least once, whatever dies.
