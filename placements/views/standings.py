"""How clusters stand, with their marks."""

from clusters.listing import Standing
from placements.views.states import State

STANDINGS = {
    Standing.ELIGIBLE: State("ok", "eligible"),
    Standing.JOINING: State("progress", "joining"),
    Standing.CORDONED: State("attention", "cordoned"),
    Standing.NOT_ELIGIBLE: State("failed", "not eligible"),
    Standing.LEAVING: State("blocked", "leaving"),
}
