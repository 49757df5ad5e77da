import os
import sys
import re
import re
import io
import abc
X = 1
