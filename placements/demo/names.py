"""Names of clusters: an adjective and an animal, and a number where those run out."""

from random import Random

_ADJECTIVES = """
amber azure bold brave bright brisk calm clever copper coral cosmic crimson daring dusky eager early fair
fancy fleet fond frosty gentle glad golden grand happy hardy hazel honest humble icy indigo ivory jade jolly
keen kind light lively loyal lucky lunar mellow merry mighty misty modest nimble noble olive pale patient
plucky polar proud quick quiet rapid ruby rustic sandy scarlet shy silent silver sleek smart solar spry
steady stormy sunny swift tidy vivid warm wild wise witty young
"""
_ANIMALS = """
badger bat bear beaver bison camel cat cheetah condor crane crow deer dolphin dove eagle elk falcon ferret
finch fish fox gazelle gecko goat goose hare hawk heron hippo horse ibex ibis jackal jaguar kestrel kiwi
koala lark lemur leopard lion lizard llama lynx marten mole moose moth newt ocelot orca oriole otter owl
panda parrot penguin plover puffin puma quail rabbit raven robin salmon seal shark
"""


def unique_names(count: int, rng: Random) -> list[str]:
    """Give as many names as asked for, no two alike."""
    plain = sorted({adjective + animal for adjective in _ADJECTIVES.split() for animal in _ANIMALS.split()})
    rng.shuffle(plain)
    rounds = range(1, 1 + -(-count // len(plain)))
    names = [name if number == 1 else f"{name}-{number}" for number in rounds for name in plain]
    return names[:count]
