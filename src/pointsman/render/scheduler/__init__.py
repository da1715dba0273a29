"""From a SchedulerInstall and its surroundings to objects: picker, gateway, route, and the way picks are followed."""
