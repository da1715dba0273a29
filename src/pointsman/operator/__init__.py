"""The operator: makes clusters hold what SimulatorDeployments ask for, and says truthfully how far it got."""
