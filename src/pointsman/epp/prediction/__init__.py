"""Sockets to llm-d's latency predictor: `questions` asks how long endpoints would take, `training` tells it what came.

Messages are `request.predictions`, features and addresses `plugins.sidecars`.
"""
