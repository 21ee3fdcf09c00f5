"""The driver of real Kubernetes clusters (`rules/kubernetes-driver.md`)."""
