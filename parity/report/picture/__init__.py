"""The picture of a verdict as SVG without a script: what it shows, and how it is drawn."""
