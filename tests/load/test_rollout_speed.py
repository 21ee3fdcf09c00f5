"""Gates on what a rollout costs the database: counts, which no noise disturbs."""

import pytest

from tests.load.rolling_out import updated
from tests.rollouts.world import World
from tests.rows import spec

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
MOST_STATEMENTS = 45


@pytest.mark.parametrize("clusters", [60, 240])
def test_a_step_takes_few_statements_however_many_clusters_there_are(clusters: int) -> None:
    world = World(clusters)
    world.place("web", spec())
    world.run(until=world.is_settled)

    went = updated(world)

    assert went.steps == clusters
    assert went.statements_a_step <= MOST_STATEMENTS
