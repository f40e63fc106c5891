//! Keeps the services; the command polylet.
