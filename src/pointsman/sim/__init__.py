"""A vLLM without a GPU.

server     pods behind ports: what is served where
grpc, api  vLLM's APIs, each from its body to sequences in the engine and back to its own shape of answer
pod        one simulated Pod: its timer, its metrics, its KV cache events
jobs       a request on its way through the engine
text       what is asked and what is said: tokens, prompts, answers, tool calls
fit        a recorded run, and the coefficients that explain it
engine     batching in steps: clock-free, no I/O

failures, options, settings   what can be set, how it is read, and which faults can be asked for
"""
