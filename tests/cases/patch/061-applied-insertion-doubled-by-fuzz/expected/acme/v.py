import os
NAME = 'x'
DEBUG = False
DEBUG = False
LEVEL = 1
