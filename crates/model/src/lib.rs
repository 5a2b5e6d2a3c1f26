//! The transformer: configuration, parameters, forward pass, taps, and its fused training pass
