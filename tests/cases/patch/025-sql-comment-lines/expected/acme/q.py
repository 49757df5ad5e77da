Q = '''
-- one
++ two
SELECT 2
'''
