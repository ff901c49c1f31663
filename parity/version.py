"""Version of the engine that stands in every verdict; the same number as the package's."""

ENGINE_VERSION = "0.1.0"
