"""python -m cli: the same as corral."""

import sys

from cli.main import main

sys.exit(main())
