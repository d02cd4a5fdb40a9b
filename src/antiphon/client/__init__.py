"""Any Open Responses server, called from Python: requests, streams, sockets, and an agent loop.

client, sync, blocking           what a caller holds; `portal` leads from blocking code to a loop
fields, ask, peer                a request: its fields, what is asked, and whom
source, listener                 an answer over HTTP: bytes to frames to events
reading, lenient                 one frame as an event, whoever wrote it
openings, letter                 what a stream forgot, mended; or the first rule that it breaks
socket, dial, messages, inbox    the same over a WebSocket, lane by lane
stream, channel                  a response as its reader hears it, and where events wait
pages, conversations             long lists, and the conversations that a server keeps
errors                           what a server says went wrong
tools, agent                     functions that a model may call, and the loop that calls them
"""
