"""Fleets to try the console on: clusters, hub resources and placements as plain documents.

Nothing here knows a database or a clock. What loads a demo hands in the moment that is now.
"""

from placements.demo.demo import Demo, HistoryStep
from placements.demo.fleets import DEMO_SIZES, demo_of
from placements.demo.members import SIMULATED_ANNOTATION, SimulatedFault

__all__ = ["DEMO_SIZES", "SIMULATED_ANNOTATION", "Demo", "HistoryStep", "SimulatedFault", "demo_of"]
