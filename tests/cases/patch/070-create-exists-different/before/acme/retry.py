# local version
