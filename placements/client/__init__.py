"""The command `fleetui`: requests to the REST API of a console elsewhere or of this process."""
