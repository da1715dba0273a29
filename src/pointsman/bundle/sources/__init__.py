"""Where bundles come from: folders, images on disk and in registries, catalogs; all of it read within limits."""
