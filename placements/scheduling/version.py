"""The version of the engine: part of every decision id, raised when a decision could come out otherwise."""

ENGINE_VERSION = "1"
