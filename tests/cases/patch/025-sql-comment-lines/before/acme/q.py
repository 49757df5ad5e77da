Q = '''
-- one
-- two
SELECT 1
'''
