"""The earlier versions whose records are upgraded, by their day. A release adds its commit."""

COMMITS = {"29 November": "cb59f32b"}
