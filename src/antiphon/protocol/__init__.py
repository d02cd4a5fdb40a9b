"""The protocol: values, parts to events, events to a response, and the rules. No I/O, no clock.

struct                   base class of all protocol objects; decoding and encoding that lose nothing;
                         access to JSON of any shape
items, tools             items and their content parts, and the tools that a model may call
request, response        what a client sends, and what it gets
events                   the 24 streaming events, the extension event, and the table of streamed texts
errors                   our exceptions, and the error object of the protocol
parts                    the vocabulary of adapters and agents: what a model produced
synth                    parts in, events out: the lifecycle of a response; all text in one message for Hashbrown
synth_items              the lifecycle of its items, and `SynthOptions`
fast_text                the text fast path, and the emitter that numbers and folds events
fold                     events in, response out
rules, checker           what a stream may contain, as tables; which rules a stream breaks
context                  history and input assembled for a model, and cut to its window; token estimates
surrogates               split surrogate pairs, joined or replaced
json_schema              validation and references of JSON Schemas
foreign                  streams of other servers, read leniently and repaired
"""
