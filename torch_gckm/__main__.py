"""``python -m torch_gckm`` is the command ``gckm``."""

import sys

from torch_gckm.cli import main

sys.exit(main())
