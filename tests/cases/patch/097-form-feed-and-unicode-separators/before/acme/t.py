A = 1

class X:
    sep = ''
    fs = ''
    nel = ''
    ls = '  '

B = 2
C = 3
