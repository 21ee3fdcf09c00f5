"""What the removal of a placement waits for."""

from clusters.drivers.base import ObjectRef
from clusters.drivers.kubernetes.removal import Removal


def test_an_object_is_named_before_the_namespace_that_waits_for_it() -> None:
    namespace = ObjectRef("", "Namespace", "", "shop")
    settings = ObjectRef("", "ConfigMap", "shop", "settings")

    removal = Removal(
        waiting={
            namespace: "some resources are remaining",
            settings: "example.com/never",
        }
    )

    assert (
        removal.words()
        == "ConfigMap shop/settings and 1 more are deleted (example.com/never)"
    )
