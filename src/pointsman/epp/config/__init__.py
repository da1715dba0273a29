"""From an EndpointPickerConfig to a scheduler: the document, its defaults, the plugin types, the build, the reload."""
