"""A store in PostgreSQL, shared by any number of processes.

store           `PostgresStore`: the store's methods
operations      operations of several statements: beginnings and ends, chains, lists, retention
list_pages      pages of the lists of responses and conversations
append_writer   appends of all streams of this process, a transaction per flush
sql             the SQL statements, and the conversion between rows and values
schema          the tables and their migrations
database        the connections, and the mapping of the driver's errors
workers         the lease of this process, and the responses of processes that are gone
notifications   notifications between processes, combined
"""
