"""Storage for responses, their events, conversations and Hashbrown threads.

base       the interfaces every store implements, its values, pagination, and the notifier of new events
ids        the ids of responses, items and conversations
memory     a store in dictionaries
sqlite/    a store in one SQLite file
postgres/  a store in PostgreSQL, shared by any number of processes
"""
