"""Values, and their decoding from the API's JSON. Pure."""
