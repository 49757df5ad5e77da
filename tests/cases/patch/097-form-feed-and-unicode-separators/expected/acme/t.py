A = 1

class X:
    sep = ''
    fs = ''
    nel_ = ''
    ls = '  '

B = 22
C = 3
