"""Storage for responses, their events, conversations and Hashbrown threads.

base     the interfaces every store implements, its values, and pagination
memory   a store in dictionaries
notify   wakes the readers of a response when it has new events
sqlite/  a store in one SQLite file
"""
