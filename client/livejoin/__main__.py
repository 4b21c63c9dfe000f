"""`python -m livejoin` is the command line."""

import sys

from livejoin.cli import main

sys.exit(main())
