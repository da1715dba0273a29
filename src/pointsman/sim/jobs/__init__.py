"""A request on its way through the engine, and the frames in which its answer leaves."""
