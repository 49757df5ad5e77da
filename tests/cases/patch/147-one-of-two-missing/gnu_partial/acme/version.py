VERSION = '1.0+p1'
NAME = 'acme'
