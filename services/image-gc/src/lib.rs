//! Room for images.
