"""The driver of real Kubernetes clusters (`spec/kubernetes-driver.md`)."""
