"""Values, and what decodes them from the API's JSON. Pure."""
