//! What others may ask of this node over HTTP.
