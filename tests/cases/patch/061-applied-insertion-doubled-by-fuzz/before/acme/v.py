import os
NAME = 'x'
DEBUG = False
LEVEL = 1
