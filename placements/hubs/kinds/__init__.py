"""The kinds of live hubs by name."""

from collections.abc import Mapping

from placements.hubs.kinds.base import HubApi
from placements.hubs.kinds.kubefleet import KUBEFLEET

HUB_KINDS: Mapping[str, HubApi] = {api.name: api for api in (KUBEFLEET,)}
