"""What the tests of searches share."""

from torch_gckm.select import Space, search

SMALL = Space(channels=(3, 4), depth=(1, 2))


def quick(data, count=12, **options):
    return search(data, SMALL, budget=None, max_settings=count, progress=False, **options)
