"""Logging in: accounts, second factors, identity providers, sessions and the limits of attempts."""
