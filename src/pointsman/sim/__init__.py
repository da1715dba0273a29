"""A vLLM without a GPU.

engine, lanes, steps, blocks, hashing, latency   the engine: clock-free, no I/O; what the lab uses
recordings, fit                                  a recorded run, and the coefficients that explain it
tokens, prompts, answers, tools, dataset, chance what is asked and what is said
bodies, plans, intake, jobs                      one path from any API's body to sequences in the engine
chat, completions, responses, messages,          the shapes of the answers
  generate, images, rpc
pod, metrics, fakes, failures, events            one simulated pod: its timer, its metrics, its faults, its KV events
routes, controls, admin, openapi, server         HTTP around pods
settings, options                                everything that can be set, and how it is read
"""
