"""A store in one SQLite file.

store       `SqliteStore`: the store's methods
operations  every read, in one snapshot each, and every write of more than one statement, in a transaction each
sql         the SQL statements, and the conversion between rows and values
schema      the tables, their migrations, and the import of a Xaibo database
database    the writer thread with group commit, the reader threads, the folder lock
"""
