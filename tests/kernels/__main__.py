"""``python -m tests.kernels MANIFEST``: make the trees, and print the shipped one and the patched, complete one."""

import sys

from tests.kernels import trees

print(trees.pristine(), trees.complete(sys.argv[1]))
