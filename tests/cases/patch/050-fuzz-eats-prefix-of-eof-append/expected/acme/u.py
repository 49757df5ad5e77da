x = 1
y = 2
c = 3
z = 3
