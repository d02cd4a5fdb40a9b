"""A store in one SQLite file.

store       `SqliteStore`: the store's methods
operations  reads and writes of several statements or rows: each read in one snapshot, each write in one transaction
sql         the SQL statements, and the conversion between rows and values
schema      the tables, their migrations, and the import of a Xaibo database
database    the writer thread with group commit, the reader threads
process     the processes that use one folder: which of them live, and notifications between them
"""
