"""A comparison as one HTML file with the charts of the dashboard: no server, no network."""
