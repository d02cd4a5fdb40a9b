"""The agent loop: rounds of asking and calling, told as they happen.

run, brief, options        one run: begun and stopped, what it is to do, how it is steered
loop, rounds               ask, call, ask again; what was said, and what the server has of it
routes, chat, recovery     the ways to ask, and what to do when one fails
window                     how much the model may be given to read
events, teller, calling    what is told: by whom, and of the calls; `pacing` says how fast
smooth, chunks, atoms      text let out at an even pace, and where it may be cut
conversation, floor        what was said before, and whose turn it is to speak
"""
