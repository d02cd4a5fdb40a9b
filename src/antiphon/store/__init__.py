"""Storage for responses, their events, conversations and Hashbrown threads.

base       the interfaces every store implements, its values, and the notifier of new events
lists      lists of responses and conversations: filters, search, the rows of a page
pagination cursors and pages
ids        the ids of responses, items and conversations
memory     a store in dictionaries
sqlite/    a store in one SQLite file
postgres/  a store in PostgreSQL, shared by any number of processes
"""
