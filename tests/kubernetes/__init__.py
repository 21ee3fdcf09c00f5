"""The Kubernetes driver against real API servers; needs the binaries of `make kube`."""
