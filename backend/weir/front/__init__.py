"""The API's front: what is checked of a request before anything of Weir's sees it."""
