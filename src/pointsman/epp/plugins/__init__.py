"""The plugins of llm-d under their own names, and the protocols by which anyone's class is one.

One module per kind. A plugin is a plain class: what it can do is what methods it has (`api`), what it can be told is a
typed dataclass or pydantic model, and `registry` maps the names of configuration files to classes.
"""
